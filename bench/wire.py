"""`make bench-wire`: the cost of a command over real TLS on one core, client and router together, next to the floor.

python -m bench.wire                 the whole table, about a minute
python -m bench.wire --quick         a smoke run of a few seconds; its figures mean little
python -m bench.wire --connections 0 without the memory of idle connections
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rich.progress import track

from bench import floor
from bench.idle_connections import kibibytes_per_connection
from bench.results import Result, show
from tocsin.clients import ClientSettings, NtfClient, Request, SmpClient
from tocsin.crypto.certificates import issue_leaf, make_authority, new_serial
from tocsin.crypto.credentials import CertificateAlgorithm, Credentials
from tocsin.crypto.keys import (
    AuthPrivateKey,
    AuthPublicKey,
    Ed448PrivateKey,
    Ed25519PrivateKey,
    X25519PrivateKey,
)
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.responses import TokenChecked
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.protocol.ntf.token_commands import CheckToken
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.sessions import ReceivedCommand, RouterSession
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications
from tocsin.protocol.smp.recipient_commands import Subscribe
from tocsin.protocol.smp.responses import Subscribed
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.listener import Listener
from tocsin.transport.router_sessions import RouterIdentity, accept_ntf, accept_smp
from tocsin.transport.tls_contexts import server_context

RATIO_LIMIT: Final = 1.6
MEMORY_LIMIT_KIB: Final = 20.0
SEND_BODY_BYTES: Final = 15_000
AUTHORIZED_OVERHEAD: Final = 33 + 25 + 25
"""Session id, correlation id and entity id with their lengths: what is signed besides the command."""
ROUNDS: Final = 3
"""Each figure is the best of this many rounds: noise only adds."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A command to measure."""

    name: str
    dialect: Dialect
    command: Command
    response: Response
    count: int
    once: bool = False
    """Sent once per entity and session, so an agreed key is of no use: then the ratio is told, but has no limit."""


@dataclass(frozen=True, slots=True)
class KeyKind:
    """How it is authorized."""

    name: str
    make: Callable[[], AuthPrivateKey]
    floor: Callable[[], floor.BareAuthorization]
    share: float = 1.0
    """How much of an operation's count is enough; slow algorithms need fewer."""
    one_key: bool = False
    """All commands are for one entity, so that the key agreement is done once."""


OPERATIONS: Final = (
    Operation("SUB", SMP, Subscribe(), Subscribed(), 4000, once=True),
    Operation("SEND", SMP, SendMessage(MessageFlags(notify=True), bytes(SEND_BODY_BYTES)), Done(), 600),
    Operation("NSUB", SMP, SubscribeNotifications(), Subscribed(), 4000, once=True),
    Operation("TCHK", NTF, CheckToken(), TokenChecked(TokenStatus(TokenState.ACTIVE)), 3000),
)
KEY_KINDS: Final = (
    KeyKind("Ed25519", lambda: Ed25519PrivateKey(os.urandom(32)), floor.Ed25519),
    KeyKind("Ed448", lambda: Ed448PrivateKey(os.urandom(57)), floor.Ed448, share=0.25),
    KeyKind("X25519 first use", lambda: X25519PrivateKey(os.urandom(32)), floor.X25519FirstUse),
    KeyKind("X25519 agreed", lambda: X25519PrivateKey(os.urandom(32)), floor.X25519Agreed, one_key=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.wire", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument(
        "--connections", type=int, default=5000, help="idle connections to open (default 5000)"
    )
    options = parser.parse_args()
    scale, connections = (0.05, min(options.connections, 50)) if options.quick else (1.0, options.connections)
    results = asyncio.run(measure_commands(scale, rounds=1 if options.quick else ROUNDS))
    if connections:
        kibibytes = asyncio.run(kibibytes_per_connection(make_credentials(), connections))
        results.append(
            Result(
                f"memory of an idle connection ({connections} open)",
                kibibytes,
                "KiB",
                kibibytes / MEMORY_LIMIT_KIB,
                1.0,
            )
        )
    show("Commands over TLS, client and router on one core; ratio to bare crypto and TLS", results)


async def measure_commands(scale: float, rounds: int) -> list[Result]:
    credentials = make_credentials()
    combinations = [(operation, kind) for operation in OPERATIONS for kind in KEY_KINDS]
    results = []
    for operation, kind in track(combinations, "Measuring", transient=True):
        count = max(20, int(operation.count * scale * kind.share))
        spent, blocks = await _best(operation, kind, credentials, count, rounds)
        bare = min([await _floor(operation, kind, credentials, count, blocks) for _ in range(rounds)])
        limit = None if operation.once and kind.one_key else RATIO_LIMIT
        results.append(Result(f"{operation.name}, {kind.name}", 1 / spent, "commands/s", spent / bare, limit))
        results.append(Result(f"{operation.name}, {kind.name}: CPU", spent * 1e6, "µs"))
    return results


def make_credentials() -> Credentials:
    now = datetime.now(UTC)
    authority = make_authority(CertificateAlgorithm.ED25519, now=now, serial=new_serial())
    return issue_leaf(authority, "localhost", CertificateAlgorithm.ED25519, now=now, serial=new_serial())


async def _best(
    operation: Operation, kind: KeyKind, credentials: Credentials, count: int, rounds: int
) -> tuple[float, int]:
    """CPU seconds per command, and how many blocks were sent."""
    measured = [await _measure(operation, kind, credentials, count) for _ in range(rounds)]
    return min(measured)


async def _measure(
    operation: Operation, kind: KeyKind, credentials: Credentials, count: int
) -> tuple[float, int]:
    """One session: every command is encoded, sent, received, verified, answered, and its answer decoded."""
    private = {os.urandom(24): kind.make() for _ in range(1 if kind.one_key else count)}
    public = {entity_id: key.public for entity_id, key in private.items()}
    identity = RouterIdentity.create(operation.dialect, credentials)

    async def serve(connection: BlockConnection) -> None:
        accept = accept_smp if operation.dialect is SMP else accept_ntf
        served = await accept(connection, identity)
        await served.serve(lambda session, received: _answer(session, received, public, operation.response))

    def requests() -> Iterator[Request]:
        entities = list(private.items())
        for number in range(count):
            entity_id, key = entities[number % len(entities)]
            yield Request(operation.command, entity_id, key)

    context = server_context(credentials, alpn=identity.alpn, request_client_certificates=False)
    block_size = operation.dialect.block_size
    async with Listener(
        serve, context=context, block_size=block_size, hosts=["127.0.0.1"], port=0
    ) as listener:
        location = RouterLocation(("127.0.0.1",), str(listener.port), credentials.fingerprint)
        address = RouterAddress(Scheme(operation.dialect.name.lower()), location)
        client_kind = SmpClient if operation.dialect is SMP else NtfClient
        async with client_kind.connect(address, ClientSettings()) as client:
            sent_before = client._connection._connection.blocks_sent
            began = time.process_time()
            async for answer in client.request_all(requests()):
                if answer.outcome != operation.response:
                    raise RuntimeError(f"{operation.name} failed: {answer.outcome!r}")
            spent = time.process_time() - began
            return spent / count, client._connection._connection.blocks_sent - sent_before


def _answer(
    session: RouterSession, received: ReceivedCommand, keys: dict[bytes, AuthPublicKey], response: Response
) -> Response:
    return response if session.verifies(received, keys[received.entity_id]) else Refused(ErrorCode.AUTH)


async def _floor(
    operation: Operation, kind: KeyKind, credentials: Credentials, count: int, blocks: int
) -> float:
    """Seconds per command that the same work costs with nothing around it."""
    dialect = operation.dialect
    message = bytes(AUTHORIZED_OVERHEAD) + operation.command.encode(dialect.supported.highest)
    load = floor.Load(dialect.block_size, dialect is SMP, blocks, count, message, kind.floor)
    return await floor.seconds_per_command(load, credentials)


if __name__ == "__main__":
    main()
