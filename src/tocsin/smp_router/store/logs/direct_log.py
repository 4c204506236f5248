"""The log of direct notifications, `smp-server-direct.log`, a file of our own.

The file is created with the first line and rewritten when most of its lines are outdated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Self, TypeAlias

from tocsin.durable.log_fields import (
    FIELD,
    BadLogLine,
    LineOfWords,
    WordForm,
    decode_field,
    decode_line,
    decode_number,
    encode_field,
    encode_number,
    exactly,
    not_known,
)
from tocsin.durable.log_files import AppendOnlyFile, replace_lines, sync_folder
from tocsin.errors import DecodeError
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.smp_router.store.interface import NtfRouterRecord, SmpDirectStore, WaitingPacket

_NONE: Final = b"-"


def _decode_minimum(text: bytes) -> MinimumPriority:
    try:
        return MinimumPriority(decode_number(text))
    except ValueError:
        raise not_known("unknown minimum priority") from None


MINIMUM: Final[WordForm[MinimumPriority]] = WordForm(encode_number, _decode_minimum)


@dataclass(frozen=True, slots=True)
class NtfRouterSet:
    """NTF_ROUTER serviceId address key|- issuedAt"""

    tag: ClassVar[bytes] = b"NTF_ROUTER"

    record: NtfRouterRecord

    def encode(self) -> bytes:
        record = self.record
        fields = [encode_field(record.service_id), _encode_location(record.location), _maybe(record.auth_key)]
        return b" ".join([self.tag, *fields, encode_number(record.issued_at)])

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        service_id, location, key, issued_at = exactly(words, 4)
        return cls(
            NtfRouterRecord(
                decode_field(service_id),
                _decode_location(location),
                _decode_maybe(key),
                decode_number(issued_at),
            )
        )


@dataclass(frozen=True, slots=True)
class MinimumPrioritySet(LineOfWords):
    """PRIORITY notifierId 0|1|2|3; a notifier without a line has 1."""

    tag: ClassVar[bytes] = b"PRIORITY"
    forms = FIELD, MINIMUM

    notifier_id: bytes
    minimum: MinimumPriority


@dataclass(frozen=True, slots=True)
class PacketAdded:
    """PACKET packetId createdAt address notifierId|- packet"""

    tag: ClassVar[bytes] = b"PACKET"

    packet: WaitingPacket

    def encode(self) -> bytes:
        packet = self.packet
        return b" ".join(
            [
                self.tag,
                encode_field(packet.packet_id),
                encode_number(packet.created_at),
                _encode_location(packet.location),
                _maybe(packet.notifier_id),
                encode_field(packet.packet),
            ]
        )

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        packet_id, created_at, location, notifier_id, packet = exactly(words, 5)
        return cls(
            WaitingPacket(
                decode_field(packet_id),
                decode_number(created_at),
                _decode_location(location),
                _decode_maybe(notifier_id),
                decode_field(packet),
            )
        )


@dataclass(frozen=True, slots=True)
class PacketRemoved(LineOfWords):
    """DONE packetId"""

    tag: ClassVar[bytes] = b"DONE"
    forms = (FIELD,)

    packet_id: bytes


DirectChange: TypeAlias = NtfRouterSet | MinimumPrioritySet | PacketAdded | PacketRemoved
DIRECT_CHANGES: Final = (NtfRouterSet, MinimumPrioritySet, PacketAdded, PacketRemoved)
_KINDS: Final[dict[bytes, type[DirectChange]]] = {kind.tag: kind for kind in DIRECT_CHANGES}


def decode_direct_line(line: bytes) -> DirectChange:
    """Raises `BadLogLine`."""
    return decode_line(line, _KINDS)


def direct_records(store: SmpDirectStore) -> list[DirectChange]:
    """Return the present records."""
    return [
        *(NtfRouterSet(record) for record in store.ntf_routers()),
        *(MinimumPrioritySet(*each) for each in store.minimum_priorities()),
        *(PacketAdded(packet) for packet in store.packets()),
    ]


def direct_lines(store: SmpDirectStore) -> Iterator[bytes]:
    """Return the lines of a log of the present records."""
    return (record.encode() for record in direct_records(store))


def _maybe(value: bytes | None) -> bytes:
    return _NONE if value is None else encode_field(value)


def _decode_maybe(text: bytes) -> bytes | None:
    return None if text == _NONE else decode_field(text)


def _encode_location(location: RouterLocation) -> bytes:
    return encode_field(location.text(Scheme.NTF).encode())


def _decode_location(text: bytes) -> RouterLocation:
    try:
        return RouterAddress.of(decode_field(text).decode(), Scheme.NTF).location
    except (DecodeError, UnicodeDecodeError):
        raise BadLogLine("not a router address") from None


LEAST_BYTES: Final = 16 << 20
"""The size below which the file is never rewritten."""


class DirectLogFile:
    """One file, written by one thread."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        self._file: AppendOnlyFile | None = None
        self._compact_bytes = 0

    @property
    def outgrown(self) -> bool:
        """Whether the file has more than twice its size after the last rewrite."""
        return self._file is not None and self._file.size > max(LEAST_BYTES, 2 * self._compact_bytes)

    def append(self, lines: list[bytes]) -> None:
        """Append a line, which is on disk when this returns. Raises StoreError."""
        self._opened().append(b"\n".join([*lines, b""]))

    def replace(self, lines: Iterable[bytes]) -> None:
        """Replace the lines. If the power fails, the file keeps the old ones. Raises StoreError."""
        self.close()
        replace_lines(self._path, lines)
        self._compact_bytes = self._opened().size

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> AppendOnlyFile:
        if self._file is None:
            file = AppendOnlyFile(self._path)
            try:
                sync_folder(self._path.parent)  # the file may be new, or a failed attempt's
            except BaseException:
                file.close()
                raise
            self._file = file
        return self._file
