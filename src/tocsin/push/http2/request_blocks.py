"""Header blocks of requests that are alike (RFC 7541): what they share is compressed once for each connection.

Theory of operation. A request's headers are runs that many requests share, and headers of its own. A shared run goes
through the encoder until it consists of nothing but references to its table; these bytes stay right as long as nothing
is added to the table, since a reference counts from its end. So whenever the encoder adds an entry, all that is kept is
forgotten. A request's own headers are written literally, marked never to be indexed, and change no table.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tocsin.push.http2.hpack import Header, new_encoder

_NEVER_INDEXED: Final = b"\x10"
_PATH_NEVER_INDEXED: Final = b"\x14"
"""`:path` is entry 4 of the fixed table."""
_LONG: Final = 0x7F
_SIZES: Final = tuple(bytes((size,)) for size in range(_LONG))


class SharedHeaders(NamedTuple):
    """What requests have in common; known by its identity."""

    before_path: tuple[Header, ...]
    after_path: tuple[Header, ...]


class OwnHeader:
    """A header whose value differs from request to request."""

    __slots__ = ("_head", "name")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self._head = _NEVER_INDEXED + _string(name)

    def encode(self, value: bytes) -> bytes:
        return self._head + _string(value)


class RequestBlocks:
    """Of one connection."""

    def __init__(self) -> None:
        self._encoder = new_encoder()
        self._kept: dict[int, tuple[SharedHeaders, bytes, bytes]] = {}

    def change_table_size(self, size: int) -> None:
        self._encoder.header_table_size = size
        self._kept.clear()

    def encode(self, headers: list[Header] | tuple[Header, ...]) -> bytes:
        """Any headers; forgets what is kept, since the table may change."""
        self._kept.clear()
        return self._encoder.encode(headers)

    def encode_request(self, shared: SharedHeaders, path: bytes, own: bytes) -> bytes:
        """`own` is joined from what `OwnHeader.encode` gave."""
        kept = self._kept.get(id(shared))
        if kept is None:
            before, after = self._encode_shared(shared)
        else:
            _, before, after = kept
        return b"".join((before, _PATH_NEVER_INDEXED, _string(path), after, own))

    def _encode_shared(self, shared: SharedHeaders) -> tuple[bytes, bytes]:
        before, after = self._encoder.encode(shared.before_path), self._encoder.encode(shared.after_path)
        if len(before) == len(shared.before_path) and len(after) == len(shared.after_path):
            # One byte for each header: all of them are references. Holding `shared` keeps its id from being reused.
            self._kept[id(shared)] = shared, before, after
        else:
            self._kept.clear()
        return before, after


def _string(data: bytes) -> bytes:
    """A length and the bytes as they are (RFC 7541, 5.2)."""
    size = len(data)
    if size < _LONG:
        return _SIZES[size] + data
    rest = size - _LONG
    head = [_LONG]
    while rest >= 0x80:
        head.append(rest & 0x7F | 0x80)
        rest >>= 7
    head.append(rest)
    return bytes(head) + data
