"""CPU per Web Push with our HTTP/1.1 client and with h11, in turns. See decision 0017.

The service runs in a separate process, so only the client's CPU is counted: sealing, TLS, HTTP and scheduling. Both
clients share everything except HTTP. The h11 client is the least code that does the job, without our limits on heads,
interim answers and unread bodies; with them it would cost more.

python -m bench.web_push_http1              seven turns of 2,000 pushes for each client, about a minute
python -m bench.web_push_http1 --quick      a smoke run; its figures mean little
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import h11

from bench.results import Result, show
from tests.doubles.web_push_service import WebPushPhone, WebPushService
from tests.unit.push.webpush.stage import KEY, NOW, request_to, web_push_settings
from tocsin.errors import ConnectionLost
from tocsin.push.provider import Accepted, PushOutcome
from tocsin.push.webpush import host_lane, http1_connection
from tocsin.push.webpush.client import WebPushProvider
from tocsin.push.webpush.http1_connection import Http1Answer
from tocsin.transport.tls_stream import TlsStream

AT_ONCE: Final = 64
LARGEST_RATIO: Final = 1.03
"""Above it, we keep our client."""


class H11Connection:
    """The part of `Http1Connection` that pushes use, on top of h11."""

    def __init__(self, stream: TlsStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT)
        self._answer: Http1Answer | None = None
        self._complete = True
        self._changed: asyncio.Future[None] | None = None
        self._lost: str | None = None
        self.received = False
        stream.start(self._on_data, self._on_lost)

    @property
    def usable(self) -> bool:
        return self._lost is None

    async def post(self, request: tuple[h11.Request, bytes]) -> Http1Answer:
        head, body = request
        http = self._http
        self._complete, self.received = False, False
        data = http.send(head), http.send(h11.Data(data=body)), http.send(h11.EndOfMessage())
        self._stream.write(b"".join(each for each in data if each))
        while self._answer is None:
            await self._change()
        return self._answer

    async def finish(self) -> None:
        while not self._complete:
            await self._change()
        self._answer = None
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            self.close()

    def close(self) -> None:
        self._stream.close("no longer needed")

    async def _change(self) -> None:
        if self._lost is not None:
            raise ConnectionLost(self._lost)
        self._changed = asyncio.get_running_loop().create_future()
        await self._changed

    def _on_data(self, data: bytes) -> None:
        self.received = True
        self._http.receive_data(data)
        while True:
            match self._http.next_event():
                case h11.Response() as event:
                    retry_after = next((v for name, v in event.headers if name == b"retry-after"), None)
                    self._answer = Http1Answer(event.status_code, retry_after)
                case h11.EndOfMessage():
                    self._complete = True
                    break
                case h11.NEED_DATA | h11.PAUSED:
                    break
        self._wake()

    def _on_lost(self, reason: str) -> None:
        self._lost = reason
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)


def h11_request(
    address: Any, urgency: Any, authorization: str, body: bytes, *, ttl: float
) -> tuple[h11.Request, bytes]:
    """The same request as `request_bytes` makes."""
    headers = [
        ("Host", address.origin.removeprefix("https://")),
        ("User-Agent", "tocsin"),
        ("Authorization", authorization),
        ("TTL", str(int(ttl))),
        ("Urgency", "high"),
        ("Content-Encoding", "aes128gcm"),
        ("Content-Type", "application/octet-stream"),
        ("Content-Length", str(len(body))),
    ]
    return h11.Request(method="POST", target=address.path, headers=headers), body


@contextmanager
def with_h11() -> Iterator[None]:
    with (
        patch.object(http1_connection, "Http1Connection", H11Connection),
        patch.object(host_lane, "request_bytes", h11_request),
    ):
        yield


def serve(folder: Path, told: Connection) -> None:
    async def run() -> None:
        async with WebPushService(folder).running() as service:
            told.send(service.port)
            while not told.poll():
                service.received.clear()
                for path in list(service._arrived):
                    del service._arrived[path]
                await asyncio.sleep(0.05)

    asyncio.run(run())


@asynccontextmanager
async def provider(service: WebPushService) -> AsyncIterator[WebPushProvider]:
    settings = web_push_settings(ca_file=service.ca_file, rate=1_000_000, timeout=30.0)
    made = WebPushProvider(settings, KEY, service.find, lambda: NOW)
    try:
        yield made
    finally:
        await made.close()


async def cpu_per_push(service: WebPushService, pushes: int) -> float:
    """Microseconds."""
    phone = WebPushPhone(service)
    async with provider(service) as made:
        await push(made, phone, 1)
        began = time.process_time()
        for _ in range(pushes // AT_ONCE):
            await push(made, phone, AT_ONCE)
        return (time.process_time() - began) / (pushes // AT_ONCE * AT_ONCE) * 1e6


async def push(made: WebPushProvider, phone: WebPushPhone, count: int) -> None:
    outcomes: list[PushOutcome] = []
    all_answered = asyncio.Event()

    def answered(outcome: PushOutcome) -> None:
        outcomes.append(outcome)
        if len(outcomes) == count:
            all_answered.set()

    for _ in range(count):
        made.submit(request_to(phone), answered)
    await all_answered.wait()
    assert all(isinstance(each, Accepted) for each in outcomes), outcomes[:3]


def measure(turns: int, pushes: int) -> tuple[list[float], list[float]]:
    """Of our client and of h11, one number for each turn."""
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as name:
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=serve, args=(Path(name), there))
        process.start()
        try:
            service = WebPushService(Path(name))
            service.port = here.recv()
            for _ in range(turns):
                ours.append(asyncio.run(cpu_per_push(service, pushes)))
                with with_h11():
                    theirs.append(asyncio.run(cpu_per_push(service, pushes)))
        finally:
            here.send("stop")
            process.join()
    return ours, theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="one short turn")
    quick = parser.parse_args().quick
    ours, theirs = measure(*((1, 2 * AT_ONCE) if quick else (7, 2_000)))
    ratio = statistics.median(h11_cpu / our_cpu for our_cpu, h11_cpu in zip(ours, theirs, strict=True))
    show(
        "CPU per Web Push",
        [
            Result("our HTTP/1.1 client", statistics.median(ours), "µs"),
            Result("h11", statistics.median(theirs), "µs", ratio, LARGEST_RATIO),
        ],
    )


if __name__ == "__main__":
    main()
