"""Messages between a router that serves its rows over TLS and the job that pulls them.

A message is its length in four bytes and MessagePack, in blocks of one size that are filled up with zeros. The job
asks, the router answers, one request at a time on each connection. The first request shows that the job has the key of
the hand-over. The router shows its identity with its certificate.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from tocsin.crypto.boxes import BoxKey
from tocsin.errors import DecodeError
from tocsin.transport.block_connection import BlockConnection

BLOCK: Final = 16_384
MOST_REQUEST: Final = 8 << 20
"""Bytes of a request after the first: outcome rows of a batch, of which more go in several requests."""
MOST_ANSWER: Final = 8 << 20
READ_BYTES: Final = 4 << 20
"""Rows in one answer, unless one segment is longer."""
LOOK_SECONDS: Final = 20.0
"""How long the router waits for news before it answers that nothing is new."""
MESSAGE_SECONDS: Final = 30.0
"""From the first block of a message to its last."""
_LENGTH: Final = 4

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""The number of a segment."""


class HelloPull(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    proof: bytes

    def __repr__(self) -> str:
        """Omit the proof."""
        return "HelloPull()"


class LookForRows(msgspec.Struct, frozen=True, array_like=True, tag="look"):
    """Which segments are there after a position? Without any, the answer comes with the next one."""

    life: str
    after: Number
    wait: float


class ReadRows(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    life: str
    first: Number
    last: Number


class RowsDone(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    life: str
    last: Number


class PublishOutcomes(msgspec.Struct, frozen=True, array_like=True, tag="publish"):
    key: str
    """A repeated request has the same."""
    lines: bytes


class FoundRows(msgspec.Struct, frozen=True, array_like=True, tag="found"):
    life: str
    """What the router numbers anew begins another life."""
    first: int
    sizes: tuple[int, ...]


class RowsRead(msgspec.Struct, frozen=True, array_like=True, tag="rows"):
    lines: bytes
    next: int
    """The number of the first segment that is not in this answer."""


class PullDone(msgspec.Struct, frozen=True, array_like=True, tag="ok"):
    pass


class PullBusy(msgspec.Struct, frozen=True, array_like=True, tag="busy"):
    """The router has too many outcomes already: try again."""


PullRequest: TypeAlias = HelloPull | LookForRows | ReadRows | RowsDone | PublishOutcomes
PullAnswer: TypeAlias = FoundRows | RowsRead | PullDone | PullBusy

T = TypeVar("T")

_PACKER: Final = msgspec.msgpack.Encoder()
REQUESTS: Final = msgspec.msgpack.Decoder(PullRequest)
ANSWERS: Final = msgspec.msgpack.Decoder(PullAnswer)


def pull_proof(key: BoxKey) -> bytes:
    """Return what only those know who have the key of the hand-over. It opens no rows."""
    return hashlib.blake2b(b"pull", key=key, digest_size=32, person=b"tocsin-handover").digest()


def message_blocks(message: PullRequest | PullAnswer) -> Iterator[bytes]:
    body = _PACKER.encode(message)
    framed = len(body).to_bytes(_LENGTH, "big") + body
    for at in range(0, len(framed), BLOCK):
        yield framed[at : at + BLOCK].ljust(BLOCK, b"\0")


async def send_message(connection: BlockConnection, message: PullRequest | PullAnswer) -> None:
    """Raises ConnectionLost, also if the peer does not read for too long."""
    for block in message_blocks(message):
        await connection.write_block(block)


async def receive_message(
    connection: BlockConnection, decoder: msgspec.msgpack.Decoder[T], longest: int
) -> T:
    """Raises ConnectionLost, DecodeError for what is no message, TimeoutError for one that stops in the middle."""
    block = await connection.read_block()
    length = int.from_bytes(block[:_LENGTH], "big")
    if length > longest:
        raise DecodeError(f"a message of {length} bytes: at most {longest} are accepted")
    body = bytearray(block[_LENGTH : _LENGTH + length])
    async with asyncio.timeout(MESSAGE_SECONDS):
        while len(body) < length:
            body += (await connection.read_block())[: length - len(body)]
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise DecodeError("not a message of a hand-over") from error
