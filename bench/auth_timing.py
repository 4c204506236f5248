"""`make bench-auth`: does the time of `ERR AUTH` reveal whether a queue, token or subscription exists? (smp-tests.md 7)

For each pair (key of the queue, key that is used) and for SUB, SEND and NSUB, three kinds of refused commands take
turns over one TLS connection: a wrong key for a queue that exists, an id that does not exist, and an id of another
kind (a sender id where a recipient id belongs, and so on). At the NTF router the same with TCHK and SCHK (N1).
The ratio is 1 - least / greatest of the three medians. All commands are signed beforehand: the client's work is not
measured.

Rows of the SMP router are measured twice: over TLS, as a stranger sees it, and inside the router, where nothing covers
a difference.

python -m bench.auth_timing              the whole table, about half a minute
python -m bench.auth_timing --quick      a smoke run; its figures mean little
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from rich.progress import track

from bench.results import Result, show
from bench.wire import make_credentials
from tests.doubles.registered_tokens import add_token
from tocsin.crypto.keys import (
    AuthPrivateKey,
    Ed448PrivateKey,
    Ed25519PrivateKey,
    X25519PrivateKey,
    X25519PublicKey,
)
from tocsin.ntf_router.running_router import running_ntf_router
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.records import SubscriptionRecord, TokenRecord
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import CheckSubscription, NotifierQueue
from tocsin.protocol.ntf.token_commands import CheckToken
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.sessions import ReceivedCommand
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications
from tocsin.protocol.smp.queue_modes import NotifierIds, NotifierKeys
from tocsin.protocol.smp.recipient_commands import CreateQueue, EnableNotifications, SecureQueue, Subscribe
from tocsin.protocol.smp.responses import NotificationsEnabled, QueueCreated
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.smp_router.running_router import RunningSmpRouter, running_smp_router
from tocsin.smp_router.session.verification import verify
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.transport.client_sessions import ClientConnection, DialSettings, dial_ntf, dial_smp
from tocsin.wire.versions import VersionRange

R = TypeVar("R", bound=Response)

RATIO_LIMIT: Final = 0.30
CLIENT_VERSIONS: Final = VersionRange(6, 7)
MISSING: Final = b"1234"
"""An id that no queue has."""

KeyMaker = Callable[[], AuthPrivateKey]
KEYS: Final[dict[str, KeyMaker]] = {
    "Ed25519": lambda: Ed25519PrivateKey(os.urandom(32)),
    "Ed448": lambda: Ed448PrivateKey(os.urandom(57)),
    "X25519": lambda: X25519PrivateKey(os.urandom(32)),
}
PAIRS: Final = (
    ("Ed25519", "Ed25519"),
    ("Ed448", "Ed25519"),
    ("Ed448", "Ed448"),
    ("Ed448", "X25519"),
    ("X25519", "Ed25519"),
    ("X25519", "Ed448"),
    ("X25519", "X25519"),
)
"""Key of the queue or token, key that is used."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """A command that is refused in three ways."""

    name: str
    command: Command
    existing: bytes
    """Whose key is another one."""
    other_kind: bytes
    """Of the same queue."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.auth_timing", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    options = parser.parse_args()
    results = asyncio.run(measure(quick=options.quick))
    show("ERR AUTH: how much the time of the answer tells (ratio: 1 - least / greatest median)", results)


async def measure(*, quick: bool) -> list[Result]:
    results = []
    async with smp_router() as (running, address):
        for of_queue, used in track(PAIRS, "Refusing", transient=True):
            count = 3 if quick else 150 if used == "Ed448" else 200
            results += await _measure_pair(running, address, of_queue, used, count)
    for of_token, used in track(PAIRS, "Refusing at the NTF router", transient=True):
        count = 3 if quick else 150 if used == "Ed448" else 200
        results += await _measure_ntf_pair(of_token, used, count)
    return results


@asynccontextmanager
async def smp_router() -> AsyncIterator[tuple[RunningSmpRouter, RouterAddress]]:
    credentials = make_credentials()
    settings = SmpSettings(hosts=("127.0.0.1",), ports=(0,), store=None)
    async with running_smp_router(settings, credentials, SmpMemoryStore()) as running:
        location = RouterLocation(("127.0.0.1",), str(running.ports[0]), credentials.fingerprint)
        yield running, RouterAddress(Scheme.SMP, location)


async def _measure_pair(
    running: RunningSmpRouter, address: RouterAddress, of_queue: str, used: str, count: int
) -> list[Result]:
    """On the connection of the owner, as upstream: its own keys have been used there and are known."""
    async with own_queue(address, of_queue) as (connection, all_refusals):
        results = []
        for refusals in all_refusals:
            name = f"{refusals.name}, queue {of_queue}, used {used}"
            cases = refused_commands(connection, refusals, KEYS[used], count)
            over_tls = await _over_tls(connection, cases)
            results.append(_result(f"{name}: over TLS", over_tls))
            results.append(_result(f"{name}: in the router", _in_router(running, connection, cases)))
        return results


@asynccontextmanager
async def own_queue(
    address: RouterAddress, of_queue: str
) -> AsyncIterator[tuple[ClientConnection, list[Refusals]]]:
    """The connection of the owner of a queue with keys of this algorithm, and what is refused there."""
    connection = await dial_smp(address, DialSettings(versions=CLIENT_VERSIONS))
    try:
        yield connection, await _own_queue(connection, KEYS[of_queue]())
    finally:
        await connection.close(1.0)


async def _own_queue(connection: ClientConnection, key: AuthPrivateKey) -> list[Refusals]:
    """A queue that is secured and has a notifier, all with this key, which is used once for each."""
    dh_key = new_dh_key()
    ids = await ask(connection, QueueCreated, CreateQueue(key.public, dh_key), b"", key)
    keys = NotifierKeys(key.public, dh_key)
    await ask(connection, Done, SecureQueue(key.public), ids.recipient_id, key)
    enabled = await ask(connection, NotificationsEnabled, EnableNotifications(keys), ids.recipient_id, key)
    notifier: NotifierIds = enabled.notifier
    send = SendMessage(MessageFlags(notify=False), b"hello")
    await ask(connection, Done, Subscribe(), ids.recipient_id, key)  # OK is what SOK was before version 16
    await ask(connection, Done, SubscribeNotifications(), notifier.notifier_id, key)
    await connection.send([connection.session.request(os.urandom(24), ids.sender_id, send, key)])
    for _ in range(2):  # OK, and the message
        await connection.receive()
    return [
        Refusals("SUB", Subscribe(), ids.recipient_id, ids.sender_id),
        Refusals("SEND", send, ids.sender_id, ids.recipient_id),
        Refusals("NSUB", SubscribeNotifications(), notifier.notifier_id, ids.sender_id),
    ]


async def _measure_ntf_pair(of_token: str, used: str, count: int) -> list[Result]:
    async with own_token(of_token) as (connection, all_refusals):
        results = []
        for each in all_refusals:
            cases = refused_commands(connection, each, KEYS[used], count)
            name = f"{each.name}, token {of_token}, used {used}: over TLS"
            results.append(_result(name, await _over_tls(connection, cases)))
        return results


@asynccontextmanager
async def own_token(of_token: str) -> AsyncIterator[tuple[ClientConnection, list[Refusals]]]:
    """The connection of a device whose token has a key of this algorithm, and what is refused there."""
    credentials, store = make_credentials(), NtfMemoryStore()
    settings = NtfSettings(hosts=("127.0.0.1",), ports=(0,), store=None)
    key = KEYS[of_token]()
    refusals = await _own_token(store, key)
    async with running_ntf_router(settings, credentials, store, {}) as running:
        location = RouterLocation(("127.0.0.1",), str(running.ports[0]), credentials.fingerprint)
        connection = await dial_ntf(RouterAddress(Scheme.NTF, location), DialSettings())
        try:
            for each in refusals:
                await ask(connection, Response, each.command, each.existing, key)  # its key is known
            yield connection, refusals
        finally:
            await connection.close(1.0)


async def _own_token(store: NtfMemoryStore, key: AuthPrivateKey) -> list[Refusals]:
    token_id, subscription_id = os.urandom(24), os.urandom(24)
    device = DeviceToken(PushProvider.APNS_TEST, os.urandom(32).hex().encode())
    secrets = (os.urandom(32), os.urandom(32), os.urandom(32))
    active = TokenStatus(TokenState.ACTIVE)
    await add_token(store, TokenRecord(token_id, device, active, key.public.der, *secrets))
    queue = NotifierQueue(RouterLocation(("smp.example.com",), "", bytes(32)), os.urandom(24))
    notifier_key = Ed25519PrivateKey.der_prefix + os.urandom(32)
    await store.add_subscription(
        SubscriptionRecord(subscription_id, token_id, queue, notifier_key, SubscriptionState.END)
    )
    return [
        Refusals("TCHK", CheckToken(), token_id, subscription_id),
        Refusals("SCHK", CheckSubscription(), subscription_id, token_id),
    ]


def new_dh_key() -> X25519PublicKey:
    return X25519PrivateKey(os.urandom(32)).public


async def ask(
    connection: ClientConnection, kind: type[R], command: Command, entity_id: bytes, key: AuthPrivateKey
) -> R:
    await connection.send([connection.session.request(os.urandom(24), entity_id, command, key)])
    [received] = await connection.receive()
    if not isinstance(received.response, kind):
        raise RuntimeError(f"{command!r} was answered {received.response!r}")
    return received.response


def refused_commands(
    connection: ClientConnection, refusals: Refusals, make_key: KeyMaker, count: int
) -> list[list[bytes]]:
    """Three lists of commands, all signed with one key that belongs to nothing."""
    key = make_key()
    return [
        [connection.session.request(os.urandom(24), entity_id, refusals.command, key) for _ in range(count)]
        for entity_id in (refusals.existing, MISSING, refusals.other_kind)
    ]


async def _over_tls(connection: ClientConnection, cases: list[list[bytes]]) -> list[float]:
    """The medians, in seconds, of the time from sending a command to reading its answer."""

    async def refused(transmission: bytes) -> None:
        await connection.send([transmission])
        [received] = await connection.receive()
        if received.response != Refused(ErrorCode.AUTH):
            raise RuntimeError(f"answered {received.response!r}")

    for transmission in cases[1]:  # warm-up, as upstream
        await refused(transmission)
    times: list[list[float]] = [[] for _ in cases]
    for turn in zip(*cases, strict=True):
        for spent, transmission in zip(times, turn, strict=True):
            began = time.perf_counter()
            await refused(transmission)
            spent.append(time.perf_counter() - began)
    return [statistics.median(spent) for spent in times]


def _in_router(
    running: RunningSmpRouter, connection: ClientConnection, cases: list[list[bytes]]
) -> list[float]:
    """The same commands, from their bytes to the refusal, without anything around it."""
    session_id = connection.session.session_id
    [peer] = [each for each in running.router.peers if each.session.session_id == session_id]
    times: list[list[float]] = [[] for _ in cases]
    for turn in zip(*cases, strict=True):
        for spent, transmission in zip(times, turn, strict=True):
            began = time.perf_counter()
            received = peer.session.read_transmission(transmission)
            if not isinstance(received, ReceivedCommand):
                raise RuntimeError(f"answered {received!r}")
            verdict = verify(running.state.store, peer, peer.session, received)
            spent.append(time.perf_counter() - began)
            if verdict is not ErrorCode.AUTH:
                raise RuntimeError(f"answered {verdict!r}")
    return [statistics.median(spent) for spent in times]


def _result(name: str, medians: list[float]) -> Result:
    ratio = 1 - min(medians) / max(medians)
    return Result(name, max(medians) * 1e6, "µs", ratio, RATIO_LIMIT)


if __name__ == "__main__":
    main()
