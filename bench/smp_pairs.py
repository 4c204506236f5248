"""The SMP router as a reference server would be loaded: pairs of clients, one message in flight each, logs on disk.

In each pair one client sends a message of 15 kB, and the other receives and acknowledges it; then the next one is
sent. The router is a process of its own, and only its CPU counts. It answers when a change is on disk.

Then many pairs do the same, without and with workers, which have the connections. The clients need cores too, so what
workers bring is computed: with a core for each process, the one that has most to do for a message is the limit. Many
pairs, because that limit counts only for a router that always has something to do: then it does more at once.

python -m bench.smp_pairs             16 pairs, about twenty seconds
python -m bench.smp_pairs --quick     a smoke run; its figures mean little
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.process_tree import children_of, cpu_of
from bench.results import Result, percentile, show
from tests.doubles.external_routers import external_router
from tests.doubles.smp_harness import router_credentials
from tocsin.clients import SmpClient
from tocsin.crypto.keys import X25519PrivateKey
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.protocol.router_answers import Done
from tocsin.protocol.smp.queue_modes import QueueMode, QueueRequest
from tocsin.protocol.smp.recipient_commands import CreateQueue, SecureQueue
from tocsin.protocol.smp.responses import MessageReceived
from tocsin.transport.credential_files import write_credentials

PAIRS: Final = 16
MANY_PAIRS: Final = 256
BODY_BYTES: Final = 15_000
TARGET_US: Final = 450.0
"""CPU of a message, from `SEND` to `ACK`. Bare cryptography and TLS of its five blocks take about 300 µs."""


@dataclass(slots=True)
class Pair:
    sender: SmpClient
    sender_key: X25519PrivateKey
    sender_id: bytes
    recipient: SmpClient
    recipient_key: X25519PrivateKey
    recipient_id: bytes

    async def exchange(self) -> float:
        """Send a message and acknowledge it. Returns the seconds between both answers' ends."""
        began = time.perf_counter()
        await self.sender.send_message(self.sender_id, bytes(BODY_BYTES), notify=False, key=self.sender_key)
        event = await anext(self.recipient.events())
        assert isinstance(event.response, MessageReceived)
        await self.recipient.acknowledge(self.recipient_id, event.response.message_id, self.recipient_key)
        return time.perf_counter() - began


async def opened_pair(stack: AsyncExitStack, address: RouterAddress) -> Pair:
    sender = await stack.enter_async_context(SmpClient.connect(address))
    recipient = await stack.enter_async_context(SmpClient.connect(address))
    key, sender_key = X25519PrivateKey(os.urandom(32)), X25519PrivateKey(os.urandom(32))
    dh_key = X25519PrivateKey(os.urandom(32)).public
    made = await recipient.create_queue(
        CreateQueue(key.public, dh_key, request=QueueRequest(QueueMode.MESSAGING)), key
    )
    await recipient.ask(Done, SecureQueue(sender_key.public), made.recipient_id, key)
    return Pair(sender, sender_key, made.sender_id, recipient, key, made.recipient_id)


@dataclass(frozen=True, slots=True)
class Measured:
    router: float
    """CPU seconds of the router's process for a message."""
    workers: tuple[float, ...]
    """CPU seconds of each worker for a message."""
    times: list[float]
    elapsed: float
    connecting: float
    """CPU seconds of the router's process for a connection that is opened and closed."""
    connecting_workers: tuple[float, ...]

    @property
    def busiest(self) -> float:
        """CPU seconds for a message of the process that has most to do: with a core for each, it is the limit."""
        return max(self.router, *self.workers, 0.0)

    @property
    def together(self) -> float:
        return self.router + sum(self.workers)


async def measure_one(count: int, messages: int, workers: int) -> Measured:
    """So many pairs send so many messages each to a router with so many workers."""
    credentials = router_credentials()
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as text:
        folder = Path(text)
        write_credentials(folder, credentials)
        log, messages_log = folder / "store.log", folder / "messages.log"
        async with (
            external_router(
                "smp",
                folder,
                credentials,
                PORT=0,
                STORE_LOG=log,
                STORE_MSGS=messages_log,
                WORKERS=workers,
            ) as router,
            AsyncExitStack() as stack,
        ):
            address = RouterAddress(Scheme.SMP, router.location)
            pairs = [await opened_pair(stack, address) for _ in range(count)]

            async def exchange_all(pair: Pair, times: int) -> list[float]:
                return [await pair.exchange() for _ in range(times)]

            await asyncio.gather(*(exchange_all(pair, max(1, messages // 10)) for pair in pairs))
            processes = [router.process.pid, *children_of(router.process.pid)]
            before, clock = [cpu_of(each) for each in processes], time.perf_counter()
            took = await asyncio.gather(*(exchange_all(pair, messages) for pair in pairs))
            elapsed = time.perf_counter() - clock
            spent = [cpu_of(each) - cpu for each, cpu in zip(processes, before, strict=True)]

            async def connect(times: int) -> None:
                for _ in range(times):
                    async with SmpClient.connect(address):
                        pass

            before = [cpu_of(each) for each in processes]
            opened = max(1, messages * count // 10 // PAIRS)
            await asyncio.gather(*(connect(opened) for _ in range(PAIRS)))
            opening = [
                (cpu_of(each) - cpu) / (opened * PAIRS) for each, cpu in zip(processes, before, strict=True)
            ]
    times = [each for pair in took for each in pair]
    cost = [each / len(times) for each in spent]
    return Measured(cost[0], tuple(cost[1:]), times, elapsed, opening[0], tuple(opening[1:]))


async def measure(messages: int, workers: int = 2) -> list[Result]:
    """Compare one process with workers, in one run. `messages` are those of each of `PAIRS`, or as many of more."""
    few = await measure_one(PAIRS, messages, 1)
    of_each = max(1, messages * PAIRS // MANY_PAIRS)
    one, several = [await measure_one(MANY_PAIRS, of_each, each) for each in (1, workers)]
    name = f"SEND, MSG, ACK of 15 kB on disk, {PAIRS} pairs with one message in flight each"
    count = len(several.workers)
    cost = few.router * 1e6
    return [
        Result(f"{name}: CPU of the router", cost, "µs", cost / TARGET_US, 1.0),
        Result(f"{name}: median", percentile(few.times, 50) * 1e3, "ms"),
        Result(f"{name}: 99 %", percentile(few.times, 99) * 1e3, "ms"),
        Result(f"{name}: throughput", len(few.times) / few.elapsed, "messages/s"),
        Result(f"{MANY_PAIRS} pairs: CPU of the router", one.router * 1e6, "µs"),
        Result(f"with {count} workers: CPU of the router's process", several.router * 1e6, "µs"),
        Result(f"with {count} workers: CPU of a worker", sum(several.workers) / count * 1e6, "µs"),
        Result(
            f"with {count} workers: CPU of all, beside one process",
            several.together * 1e6,
            "µs",
            several.together / one.router,
        ),
        Result(f"with {count} workers: median", percentile(several.times, 50) * 1e3, "ms"),
        Result(f"with {count} workers: 99 %", percentile(several.times, 99) * 1e3, "ms"),
        Result(
            f"messages that {count} workers and the router carry with a core each, beside one process",
            one.router / several.busiest,
            "times",
        ),
        Result("a connection that is opened and closed: CPU of the router", one.connecting * 1e6, "µs"),
        Result(f"with {count} workers: CPU of the router's process for it", several.connecting * 1e6, "µs"),
        Result(
            f"connections that {count} workers and the router open with a core each, beside one process",
            one.connecting / max(several.connecting, *several.connecting_workers),
            "times",
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="workers beside one process (2)")
    options = parser.parse_args()
    count = 10 if options.quick else 600
    show("The SMP router with its logs", asyncio.run(measure(count, options.workers)))


if __name__ == "__main__":
    main()
