"""Lines about direct notifications in an NTF router's changes log and state file.

    A tknId smpServer ids        queues of a token at an SMP router; ids of 24 bytes, one behind the other
    D ids until                  ended by their owner; they cannot come back before that time
    G ids time                   the SMP router says they are gone; 0: it has shown that they are not
    X ids                        removed, after a while

A state file has one `A` for each token and router.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final, Self, TypeAlias

from tocsin.durable.log_fields import (
    BadLogLine,
    decode_field,
    decode_number,
    encode_field,
    exactly,
)
from tocsin.ntf_router.store.logs.log_parts import decode_router
from tocsin.ntf_router.store.memory.subscription_table import ID_BYTES
from tocsin.protocol.addresses import RouterLocation, Scheme


@dataclass(frozen=True, slots=True)
class QueuesAssociated:
    tag: ClassVar[bytes] = b"A"

    token_id: bytes = field(repr=False)
    router: RouterLocation
    notifier_ids: tuple[bytes, ...] = field(repr=False)

    def encode(self) -> bytes:
        router = self.router.text(Scheme.SMP).encode()
        return b" ".join((self.tag, encode_field(self.token_id), router, _joined(self.notifier_ids)))

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        token_id, router, ids = exactly(words, 3)
        return cls(decode_field(token_id), decode_router(router), _split(ids))


@dataclass(frozen=True, slots=True)
class _AtTime:
    """What D and G have in common."""

    tag: ClassVar[bytes]

    notifier_ids: tuple[bytes, ...] = field(repr=False)
    time: int

    def encode(self) -> bytes:
        return b"%b %b %d" % (self.tag, _joined(self.notifier_ids), self.time)

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        ids, time = exactly(words, 2)
        return cls(_split(ids), decode_number(time))


@dataclass(frozen=True, slots=True)
class QueuesEnded(_AtTime):
    tag: ClassVar[bytes] = b"D"


@dataclass(frozen=True, slots=True)
class QueuesGone(_AtTime):
    tag: ClassVar[bytes] = b"G"


@dataclass(frozen=True, slots=True)
class QueuesRemoved:
    tag: ClassVar[bytes] = b"X"

    notifier_ids: tuple[bytes, ...] = field(repr=False)

    def encode(self) -> bytes:
        return self.tag + b" " + _joined(self.notifier_ids)

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        [ids] = exactly(words, 1)
        return cls(_split(ids))


DirectChange: TypeAlias = QueuesAssociated | QueuesEnded | QueuesGone | QueuesRemoved
DIRECT_LINES: Final[dict[bytes, type[DirectChange]]] = {
    kind.tag: kind for kind in (QueuesAssociated, QueuesEnded, QueuesGone, QueuesRemoved)
}


def _joined(notifier_ids: tuple[bytes, ...]) -> bytes:
    return encode_field(b"".join(notifier_ids))


def _split(text: bytes) -> tuple[bytes, ...]:
    joined = decode_field(text)
    if len(joined) % ID_BYTES:
        raise BadLogLine(f"ids of direct notifications have {ID_BYTES} bytes each")
    return tuple(joined[start : start + ID_BYTES] for start in range(0, len(joined), ID_BYTES))
