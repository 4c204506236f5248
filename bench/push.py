"""CPU of a push with each provider, beside the floor of the same run: encryption and TLS with the same libraries.

A push is sealed for its device, given to the provider and answered. The floor does the same encryption and moves the
same bytes over TLS, with blocking sockets and nothing around them: no queue, no limit, no time-out. Services run in
another process, whose CPU does not count. With 1,000 hosts, both sides open a connection to each of them and verify
its certificate; each host then gets a few pushes.

python -m bench.push             three turns, the median of each figure, about a minute
python -m bench.push --quick     a smoke run; its figures mean little
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from bench.results import Result, show
from tocsin.crypto.boxes import box_key, seal
from tocsin.crypto.keys import X25519PrivateKey
from tocsin.crypto.web_push import VapidKey, WebPushSecret, seal_web_push
from tocsin.operate.process import freeze_loaded_objects
from tocsin.protocol.ntf.pushes import MessagePush, push_json
from tocsin.protocol.ntf.web_push_contents import PADDED_CONTENT_BYTES
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress
from tocsin.push.apns.client import ApnsProvider
from tocsin.push.apns.request import ProviderToken
from tocsin.push.fake.web_certificate import make_web_certificate
from tocsin.push.fcm.client import FcmProvider
from tocsin.push.fcm.service_account import ServiceAccount
from tocsin.push.http2.frames import END_HEADERS, END_STREAM, FrameType, frame_head
from tocsin.push.provider import ACCEPTED, Provider, PushOutcome, PushRequest, Urgency
from tocsin.push.settings import ApnsEndpoint, ApnsSettings, FcmSettings, WebPushSettings
from tocsin.push.webpush.client import WebPushProvider
from tocsin.wire.padding import pad

LARGEST_RATIO: Final = 1.6
AT_ONCE: Final = 64
PADDED_BYTES: Final = 3000
HEADER_BYTES: Final = 120
"""A header block of a push whose shared headers the service knows."""
ANSWER: Final = frame_head(1, FrameType.HEADERS, END_HEADERS | END_STREAM, 1) + b"\x88"
WEB_ANSWER_BYTES: Final = 43
NAMES: Final = ("localhost", "*.push.test")


@dataclass(frozen=True)
class Size:
    pushes: int
    hosts: int
    pushes_for_host: int
    turns: int


FULL: Final = Size(20_000, 1_000, 4, 3)
QUICK: Final = Size(256, 20, 2, 1)


@dataclass(frozen=True)
class Services:
    ports: Mapping[str, int]
    ca_file: Path

    async def find(self, _host: str, port: int) -> Sequence[tuple[socket.AddressFamily, tuple[str, int]]]:
        """Every name is on this machine."""
        return [(socket.AF_INET, ("127.0.0.1", port))]

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_file))

    def dial(self, context: ssl.SSLContext, port: int, name: str) -> ssl.SSLSocket:
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return context.wrap_socket(sock, server_hostname=name)


@contextmanager
def running_services() -> Iterator[Services]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = make_web_certificate(NAMES, datetime.now(UTC))
        (folder / "web.crt").write_bytes(made.certificate)
        (folder / "web.key").write_bytes(made.private_key)
        command = [sys.executable, "-m", "bench.push_services", str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                yield Services(json.loads(process.stdout.readline()), folder / "web.crt")
            finally:
                process.kill()


# What is pushed


class Sealer:
    """Seals notifications for a device, as the delivery does before it calls a provider."""

    def __init__(self) -> None:
        self._key = box_key(X25519PrivateKey(os.urandom(32)).agree(X25519PrivateKey(os.urandom(32)).public))

    def push(self) -> MessagePush:
        nonce = os.urandom(24)
        return MessagePush(nonce, seal(self._key, nonce, pad(b"notifications", PADDED_BYTES)))


PUSH_ID: Final = "4ab13bbb-9ab4-4b86-a2ac-9d3a7ab1f41d"


class Batch:
    """Pushes under way, and the tokens of those that were not accepted."""

    def __init__(self, size: int) -> None:
        self._left = size
        self.failed: list[bytes] = []
        self.done = asyncio.Event()

    def note(self, token: bytes, outcome: PushOutcome) -> None:
        if outcome is not ACCEPTED:
            self.failed.append(token)
        self._left -= 1
        if not self._left:
            self.done.set()


async def push_all(provider: Provider, tokens: Sequence[bytes]) -> None:
    """Push once to each token, AT_ONCE at a time. What a provider has no room for is tried again."""
    sealer, waiting = Sealer(), deque(tokens)
    while waiting:
        batch = Batch(min(AT_ONCE, len(waiting)))
        expires_at = int(time.time()) + 3600
        for token in [waiting.popleft() for _ in range(min(AT_ONCE, len(waiting)))]:
            push = PushRequest(token, sealer.push(), Urgency.ALERT, PUSH_ID, expires_at)
            provider.submit(push, partial(batch.note, token))
        await batch.done.wait()
        waiting += batch.failed


def timed(make: Callable[[], Provider], first: bytes | None, tokens: Sequence[bytes]) -> tuple[float, float]:
    """CPU and time of a push, in seconds. With `first`, a connection is open before the measurement."""

    async def run() -> tuple[float, float]:
        provider = make()
        if first is not None:
            await push_all(provider, [first])
        cpu, clock = time.process_time(), time.perf_counter()
        await push_all(provider, tokens)
        spent = (time.process_time() - cpu) / len(tokens), (time.perf_counter() - clock) / len(tokens)
        await provider.close()
        return spent

    return asyncio.run(run())


# Providers


def es256_pem() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def apns(services: Services) -> Provider:
    endpoint = ApnsEndpoint("localhost", services.ports["http2"], services.ca_file)
    return ApnsProvider(
        endpoint, ApnsSettings(), ProviderToken(es256_pem(), "H82WD9K9AQ", "5NN7GUYB6T", time.time)
    )


def fcm(services: Services) -> Provider:
    form = serialization.PrivateFormat.PKCS8
    pem = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, form, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "project_id": "bench-project",
        "private_key_id": "1",
        "private_key": pem.decode(),
        "client_email": "bench@example.com",
        "token_uri": f"https://localhost:{services.ports['tokens']}/token",
    }
    settings = FcmSettings(host="localhost", port=services.ports["http2"], ca_file=services.ca_file)
    return FcmProvider(settings, ServiceAccount.from_json(json.dumps(account).encode()), time.time)


def web_push(services: Services) -> Provider:
    settings = WebPushSettings(
        enabled=True, subject="mailto:op@example.com", ca_file=services.ca_file, hosts=1_000, rate=1_000_000
    )
    return WebPushProvider(settings, VapidKey.from_scalar(os.urandom(32)), services.find)


def web_tokens(services: Services, hosts: int) -> list[bytes]:
    receiver = WebPushSecret(os.urandom(48)).receiver
    return [
        WebPushAddress(receiver, f"host{number}.push.test", services.ports["web"], "/endpoint").token()
        for number in range(hosts)
    ]


# Floors


def http2_floor(services: Services, pushes: int) -> float:
    """Seal, and write each batch of requests at once; read as many answers."""
    with services.dial(services.client_context(), services.ports["http2"], "localhost") as sock:
        sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame_head(0, FrameType.SETTINGS, 0, 0))
        sealer = Sealer()
        stream, answered = 1, 0
        header = bytes((0x00, 1)) + b"x" + bytes((HEADER_BYTES - 3,)) + bytes(HEADER_BYTES - 4)
        began = time.process_time()
        for _ in range(pushes // AT_ONCE):
            parts = []
            for _ in range(AT_ONCE):
                body = push_json(sealer.push())
                parts += [
                    frame_head(len(header), FrameType.HEADERS, END_HEADERS, stream),
                    header,
                    frame_head(len(body), FrameType.DATA, END_STREAM, stream),
                    body,
                ]
                stream += 2
            sock.sendall(b"".join(parts))
            wanted = answered + AT_ONCE * len(ANSWER)
            while answered < wanted:
                answered += len(sock.recv(65_536))
        return (time.process_time() - began) / (pushes // AT_ONCE * AT_ONCE)


def web_floor(services: Services, hosts: int, pushes_for_host: int, *, connected: bool) -> float:
    """Seal for the box and for Web Push, one request in one record, one answer; `connected` leaves connecting out."""
    receiver, sealer, context = WebPushSecret(os.urandom(48)).receiver, Sealer(), services.client_context()
    head = bytes(420)
    port = services.ports["web"]
    began = time.process_time()
    for number in range(hosts):
        with services.dial(context, port, f"host{number}.push.test") as sock:
            if connected:
                began = time.process_time()
            for _ in range(pushes_for_host):
                body = seal_web_push(
                    sealer.push().sealed,
                    receiver,
                    os.urandom(32),
                    os.urandom(16),
                    padded_to=PADDED_CONTENT_BYTES,
                )
                line = b"POST / HTTP/1.1\r\nContent-Length: %d\r\nX: " % len(body)
                sock.sendall(
                    line + bytes(len(head) - len(line) - 4).replace(b"\0", b"x") + b"\r\n\r\n" + body
                )
                sock.recv(WEB_ANSWER_BYTES + 1)
    return (time.process_time() - began) / (hosts * pushes_for_host)


def measure(services: Services, size: Size) -> dict[str, tuple[float, float, float]]:
    """CPU of a push, CPU of its floor, and pushes in a second, by provider."""
    found: dict[str, tuple[float, float, float]] = {}
    device = os.urandom(32).hex().encode()
    registration = b"cFMx8-vJQ9:APA91b" + b"x" * 140
    http2 = http2_floor(services, size.pushes)
    for name, make, token in (("APNs", apns, device), ("FCM", fcm, registration)):
        cpu, clock = timed(partial(make, services), token, [token] * size.pushes)
        found[name] = cpu, http2, 1 / clock
    one = web_tokens(services, 1)
    cpu, clock = timed(partial(web_push, services), one[0], one * (size.pushes // 4))
    floor = web_floor(services, 1, size.pushes // 4, connected=True)
    found["Web Push, 1 host"] = cpu, floor, 1 / clock
    many = web_tokens(services, size.hosts) * size.pushes_for_host
    cpu, clock = timed(partial(web_push, services), None, many)
    floor = web_floor(services, size.hosts, size.pushes_for_host, connected=False)
    found[f"Web Push, {size.hosts:,} hosts"] = cpu, floor, 1 / clock
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="one short turn")
    size = QUICK if parser.parse_args().quick else FULL
    freeze_loaded_objects()  # as a router does
    with running_services() as services:
        turns = [measure(services, size) for _ in range(size.turns)]
    results = []
    for name in turns[0]:
        cpu, floor, rate = (statistics.median(turn[name][part] for turn in turns) for part in range(3))
        ratio = statistics.median(turn[name][0] / turn[name][1] for turn in turns)
        results += [
            Result(f"{name}: CPU of a push", cpu * 1e6, "µs", ratio, LARGEST_RATIO),
            Result(f"{name}: floor", floor * 1e6, "µs"),
            Result(f"{name}: rate, services on the same machine", rate, "pushes/s"),
        ]
    show("Pushes by provider", results)


if __name__ == "__main__":
    main()
