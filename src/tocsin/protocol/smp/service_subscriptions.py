"""Number and hash of a service's queues, which NSUBS, SUBS, SOKS and ENDS compare (smp.md 8.6, v7.md 2)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from tocsin.errors import DecodeError
from tocsin.protocol.messages import CommandWithBody, ResponseWithBody
from tocsin.protocol.smp.versions import SERVICE_HASH_VERSION
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

IDS_HASH_BYTES: Final = 16
NO_IDS_HASH: Final = bytes(IDS_HASH_BYTES)
UNKNOWN_COUNT: Final = -1


def id_hash(entity_id: bytes) -> int:
    """Return one id's part of the hash. Adding and removing an id are the same XOR, so order does not matter."""
    return int.from_bytes(hashlib.md5(entity_id, usedforsecurity=False).digest(), "big")


def ids_hash_bytes(combined: int) -> bytes:
    return combined.to_bytes(IDS_HASH_BYTES, "big")


@dataclass(frozen=True, slots=True)
class SubscribesService(CommandWithBody):
    """Base of SUBS and NSUBS: from v19 the client's own count and hash, before that nothing."""

    bare_before: ClassVar[int] = SERVICE_HASH_VERSION

    count: int = UNKNOWN_COUNT
    ids_hash: bytes = NO_IDS_HASH

    def encode(self, version: int) -> bytes:
        return CommandWithBody.encode(self, version) if version >= SERVICE_HASH_VERSION else self.tag

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.i64(self.count).short_bytes(self.ids_hash)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        if version < SERVICE_HASH_VERSION:
            raise DecodeError(f"{cls.tag.decode()} has no parameters before v{SERVICE_HASH_VERSION}")
        return cls(body.i64(), decode_ids_hash(body))


@dataclass(frozen=True, slots=True)
class CountsQueues(ResponseWithBody):
    """Base of SOKS and ENDS: `i64(count)`, and from v19 the hash of the ids."""

    count: int
    ids_hash: bytes = NO_IDS_HASH

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.i64(self.count)
        if version >= SERVICE_HASH_VERSION:
            out.short_bytes(self.ids_hash)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.i64(), decode_ids_hash(body) if version >= SERVICE_HASH_VERSION else NO_IDS_HASH)


def decode_ids_hash(body: WireReader) -> bytes:
    ids_hash = body.short_bytes()
    if len(ids_hash) != IDS_HASH_BYTES:
        raise DecodeError(f"a hash of ids has {IDS_HASH_BYTES} bytes, not {len(ids_hash)}")
    return ids_hash
