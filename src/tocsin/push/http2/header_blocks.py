"""Header blocks of a peer: put together from frames, decompressed, and bounded (RFC 9113, 4.3 and 10.5.1)."""

from __future__ import annotations

from typing import Final, NamedTuple

from tocsin.push.http2.frames import END_HEADERS, END_STREAM, Frame, unpadded
from tocsin.push.http2.hpack import HPACKError, OversizedHeaderListError, is_panic, new_decoder

MAX_BLOCK_BYTES: Final = 32_768
MAX_CONTINUATIONS: Final = 16
"""Also empty ones cost something."""
MAX_HEADER_LIST_BYTES: Final = 65_536
"""Decompressed: a block of a few bytes can stand for any number of them."""


class HeaderBlock(NamedTuple):
    stream_id: int
    ends_stream: bool
    headers: dict[bytes, bytes]


class HeaderBlocks:
    def __init__(self) -> None:
        self._decoder = new_decoder(MAX_HEADER_LIST_BYTES)
        self._begun: Frame | None = None
        self._parts: list[bytes] = []

    @property
    def unfinished(self) -> bool:
        """Nothing but its continuation may follow."""
        return self._begun is not None

    def begin(self, frame: Frame) -> HeaderBlock | None:
        """HEADERS. Raises ValueError."""
        block = unpadded(frame)
        if frame.flags & END_HEADERS:
            return self._decoded(frame, block)
        self._begun, self._parts = frame, [block]
        return None

    def go_on(self, frame: Frame) -> HeaderBlock | None:
        """CONTINUATION. Raises ValueError."""
        begun = self._begun
        if begun is None or begun.stream_id != frame.stream_id:
            raise ValueError("a continuation of nothing")
        self._parts.append(frame.payload)
        if len(self._parts) > MAX_CONTINUATIONS or sum(map(len, self._parts)) > MAX_BLOCK_BYTES:
            raise ValueError("a header block without end")
        if not frame.flags & END_HEADERS:
            return None
        self._begun = None
        return self._decoded(begun, b"".join(self._parts))

    def _decoded(self, frame: Frame, block: bytes) -> HeaderBlock:
        """Also for streams that are over: the compression's table goes on."""
        try:
            headers = {name: value for name, value, _ in self._decoder.decode(block, True)}
        except (HPACKError, OversizedHeaderListError) as error:
            raise ValueError(f"headers that cannot be read: {error}") from error
        except BaseException as error:
            if is_panic(error):
                raise ValueError("headers that cannot be read") from error
            raise
        return HeaderBlock(frame.stream_id, bool(frame.flags & END_STREAM), headers)
