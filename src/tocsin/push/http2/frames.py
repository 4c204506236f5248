"""Frames of HTTP/2, and the header blocks that some of them carry (RFC 9113, 4, 6 and 10.5.1)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from tocsin.push.http2.hpack import (
    STATIC_HEADERS,
    CompressionError,
    Decoder,
    Encoder,
    Header,
    encode_string,
)

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES: Final = 9
MAX_FRAME_BYTES: Final = 16_384
"""The largest frame that a peer may send us: the default."""
DEFAULT_WINDOW: Final = 65_535
MAX_WINDOW: Final = (1 << 31) - 1
SETTING_BYTES: Final = 6
MAX_BLOCK_BYTES: Final = 32_768
MAX_CONTINUATIONS: Final = 16
"""The limit of frames of a header block. Empty ones cost something too."""
MAX_HEADER_LIST_BYTES: Final = 65_536
"""The limit of decompressed bytes: a block of a few bytes can stand for any number of them."""


class FrameType(IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY: Final = 0x20


class Setting(IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5


class Http2ErrorCode(IntEnum):
    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    REFUSED_STREAM = 7
    CANCEL = 8
    ENHANCE_YOUR_CALM = 11


class Frame(NamedTuple):
    kind: int
    flags: int
    stream_id: int
    payload: bytes


_HEAD: Final = struct.Struct(">HBBBL")
pack_head: Final = _HEAD.pack
"""Encodes the head of a frame from the bytes of its length (16 bits and 8), its type, flags and stream."""
_made: Final = tuple.__new__
"""Makes a `Frame` in half the time."""


def encode_frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream_id) + payload


def frame_head(size: int, kind: int, flags: int, stream_id: int) -> bytes:
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream_id)


def encode_settings(settings: dict[Setting, int]) -> bytes:
    payload = b"".join(struct.pack(">HL", setting, value) for setting, value in settings.items())
    return encode_frame(FrameType.SETTINGS, 0, 0, payload)


def decode_settings(payload: bytes) -> dict[int, int]:
    """Raises ValueError."""
    if len(payload) % SETTING_BYTES:
        raise ValueError("SETTINGS of an invalid length")
    settings = dict(struct.iter_unpack(">HL", payload))
    frame_limit = settings.get(Setting.MAX_FRAME_SIZE, MAX_FRAME_BYTES)
    if not MAX_FRAME_BYTES <= frame_limit < 1 << 24:
        raise ValueError(f"invalid SETTINGS_MAX_FRAME_SIZE {frame_limit}")
    return settings


def encode_window_update(stream_id: int, increment: int) -> bytes:
    return encode_frame(FrameType.WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))


def decode_u31(payload: bytes) -> int:
    """Decode a window increment or a stream id. Raises ValueError."""
    return decode_u32(payload) & 0x7FFFFFFF


def decode_u32(payload: bytes) -> int:
    """Decode an error code. Raises ValueError."""
    if len(payload) != 4:
        raise ValueError(f"{len(payload)} bytes instead of 4")
    return int.from_bytes(payload, "big")


def encode_reset(stream_id: int, code: Http2ErrorCode) -> bytes:
    return encode_frame(FrameType.RST_STREAM, 0, stream_id, int(code).to_bytes(4, "big"))


def encode_goaway(code: Http2ErrorCode) -> bytes:
    """Encode GOAWAY. The last stream is 0, because peers open no streams."""
    return encode_frame(FrameType.GOAWAY, 0, 0, bytes(4) + int(code).to_bytes(4, "big"))


# Frames of streams and frames of the connection: https://www.rfc-editor.org/rfc/rfc9113#section-6
STREAM_FRAMES: Final = frozenset(
    {
        FrameType.DATA,
        FrameType.HEADERS,
        FrameType.PRIORITY,
        FrameType.RST_STREAM,
        FrameType.CONTINUATION,
    }
)
CONNECTION_FRAMES: Final = frozenset({FrameType.SETTINGS, FrameType.PING, FrameType.GOAWAY})


class FrameReader:
    """Splits received bytes into frames."""

    def __init__(self) -> None:
        self._kept = b""
        """The beginning of a frame: shorter than a frame may be, as are the parts in which data comes."""

    def feed(self, data: bytes) -> list[Frame]:
        """Return whole frames. Raises ValueError for a frame that is larger than we allow."""
        if self._kept:
            data = self._kept + data
        frames: list[Frame] = []
        at, end = 0, len(data)
        while end - at >= HEAD_BYTES:
            high, low, kind, flags, stream_id = _HEAD.unpack_from(data, at)
            size = high << 8 | low
            if size > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {size} bytes")
            stop = at + HEAD_BYTES + size
            if stop > end:
                break
            frames.append(_made(Frame, (kind, flags, stream_id & 0x7FFFFFFF, data[at + HEAD_BYTES : stop])))
            at = stop
        self._kept = data[at:]
        return frames


def unpadded(frame: Frame) -> bytes:
    """Return the payload of DATA or HEADERS without padding and priority. Raises ValueError."""
    payload, flags = frame.payload, frame.flags
    if flags & PADDED:
        if not payload or payload[0] >= len(payload):
            raise ValueError("more padding than frame")
        payload = payload[1 : len(payload) - payload[0]]
    if flags & PRIORITY and frame.kind == FrameType.HEADERS:
        if len(payload) < 5:
            raise ValueError("HEADERS too short for their priority")
        payload = payload[5:]
    return payload


class HeaderBlock(NamedTuple):
    stream_id: int
    ends_stream: bool
    headers: Mapping[bytes, bytes]


_ONE_REFERENCE: Final[Mapping[bytes, Mapping[bytes, bytes]]] = {
    bytes((0x80 | index,)): {name: value} for index, (name, value, _) in enumerate(STATIC_HEADERS) if index
}
"""Blocks of one reference to the fixed table, as answers that say only their status."""


class HeaderBlocks:
    """Assembles received header blocks from frames, and decompresses them within bounds."""

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
    """Compresses the header blocks of one connection's requests."""

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
