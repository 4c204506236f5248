"""Header blocks: assembled from frames and decompressed within bounds, or compressed (RFC 9113, 4.3 and 10.5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tocsin.push.http2.frames import END_HEADERS, END_STREAM, Frame, unpadded
from tocsin.push.http2.hpack import (
    STATIC_HEADERS,
    CompressionError,
    Decoder,
    Encoder,
    Header,
    encode_string,
)

MAX_BLOCK_BYTES: Final = 32_768
MAX_CONTINUATIONS: Final = 16
"""The limit of frames of a header block. Empty ones cost something too."""
MAX_HEADER_LIST_BYTES: Final = 65_536
"""The limit of decompressed bytes: a block of a few bytes can stand for any number of them."""


class HeaderBlock(NamedTuple):
    stream_id: int
    ends_stream: bool
    headers: Mapping[bytes, bytes]


_ONE_REFERENCE: Final[Mapping[bytes, Mapping[bytes, bytes]]] = {
    bytes((0x80 | index,)): {name: value} for index, (name, value, _) in enumerate(STATIC_HEADERS) if index
}
"""Blocks of one reference to the fixed table, as answers that say only their status."""


class HeaderBlocks:
    def __init__(self) -> None:
        self._decoder = Decoder(MAX_HEADER_LIST_BYTES)
        self.begun: Frame | None = None
        """The frame of an unfinished block, which only a continuation may follow."""
        self._parts: list[bytes] = []

    def begin(self, frame: Frame) -> HeaderBlock | None:
        """Handle HEADERS. Raises ValueError."""
        block = unpadded(frame)
        if frame.flags & END_HEADERS:
            return HeaderBlock(frame.stream_id, bool(frame.flags & END_STREAM), self.decoded(block))
        self.begun, self._parts = frame, [block]
        return None

    def go_on(self, frame: Frame) -> HeaderBlock | None:
        """Handle CONTINUATION. Raises ValueError."""
        begun = self.begun
        if begun is None or begun.stream_id != frame.stream_id:
            raise ValueError("CONTINUATION without HEADERS")
        self._parts.append(frame.payload)
        if len(self._parts) > MAX_CONTINUATIONS or sum(map(len, self._parts)) > MAX_BLOCK_BYTES:
            raise ValueError("a header block that is too long")
        if not frame.flags & END_HEADERS:
            return None
        self.begun = None
        headers = self.decoded(b"".join(self._parts))
        return HeaderBlock(begun.stream_id, bool(begun.flags & END_STREAM), headers)

    def decoded(self, block: bytes) -> Mapping[bytes, bytes]:
        """Decode a whole block, also of a closed stream, because the compression table depends on it."""
        known = _ONE_REFERENCE.get(block)
        if known is not None:
            return known
        try:
            return {name: value for name, value, _ in self._decoder.decode(block)}
        except CompressionError as error:
            raise CompressionError(f"headers that cannot be decompressed: {error}") from error


_NEVER_INDEXED: Final = b"\x10"
_PATH_NEVER_INDEXED: Final = b"\x14"
"""`:path` is entry 4 of the fixed table."""


class SharedHeaders(NamedTuple):
    """Headers that requests share, compared by identity."""

    before_path: tuple[Header, ...]
    after_path: tuple[Header, ...]


class OwnHeader:
    """A header whose value differs from request to request."""

    __slots__ = ("_head", "name")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self._head = _NEVER_INDEXED + encode_string(name)

    def encode(self, value: bytes) -> bytes:
        return self._head + encode_string(value)


class RequestBlocks:
    """Encodes the header blocks of one connection."""

    def __init__(self) -> None:
        self._encoder = Encoder()
        self._kept: dict[int, tuple[SharedHeaders, bytes, bytes]] = {}

    def change_table_size(self, size: int) -> None:
        self._encoder.resize(size)
        self._kept.clear()

    def encode(self, headers: list[Header] | tuple[Header, ...]) -> bytes:
        """Encode any headers. Forgets the cached block, because the table may change."""
        self._kept.clear()
        return self._encoder.encode(headers)

    def encode_request(self, shared: SharedHeaders, path: bytes, own: bytes) -> bytes:
        """Encode shared headers and `own`, the joined results of `OwnHeader.encode`.

        An empty path is among the shared headers.
        """
        kept = self._kept.get(id(shared))
        if kept is None:
            before, after = self._encode_shared(shared)
        else:
            _, before, after = kept
        if not path:
            return before + after + own
        return b"".join((before, _PATH_NEVER_INDEXED, encode_string(path), after, own))

    def _encode_shared(self, shared: SharedHeaders) -> tuple[bytes, bytes]:
        before, after = self._encoder.encode(shared.before_path), self._encoder.encode(shared.after_path)
        if len(before) == len(shared.before_path) and len(after) == len(shared.after_path):
            # One byte for each header: all of them are references. Holding `shared` keeps its id from being reused.
            self._kept[id(shared)] = shared, before, after
        else:
            self._kept.clear()
        return before, after
