"""Compressed header blocks of HTTP/2, beside the decoder of another project."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from jh2.hpack import Decoder as OtherDecoder  # type: ignore[import-untyped]
from jh2.hpack import HPACKError, OversizedHeaderListError

from fuzz.contract import choose, demand, demand_equal
from tocsin.push.http2.hpack import ENTRY_OVERHEAD, CompressionError, Decoder, Encoder, Header

MOST_BYTES: Final = 16_384
SIZES: Final = (4096, 0, 64, 200, 1000)


def blocks_of_a_peer(data: bytes) -> None:
    """Any blocks: what both decoders understand is the same, and what is decoded is bounded."""
    size, data = choose(data, (4096, 5, 40))
    ours, other = Decoder(MOST_BYTES), OtherDecoder(MOST_BYTES)
    for at in range(0, len(data), size):
        block = data[at : at + size]
        try:
            found = ours.decode(block)
        except CompressionError:
            return  # the connection ends
        demand(
            sum(len(name) + len(value) + ENTRY_OVERHEAD for name, value, _ in found) <= MOST_BYTES, "bounded"
        )
        expected = _decoded(other, block)
        if expected is None:
            return  # the other one is stricter about what no encoder sends
        demand_equal(found, expected, "two decoders read the same headers")


def blocks_of_ours(data: bytes) -> None:
    """What our encoder writes, any decoder reads as it was meant, whatever the table's size becomes."""
    encoder, ours, other = Encoder(), Decoder(1 << 20), OtherDecoder(1 << 20)
    for piece in data.split(b"\n")[:64]:
        if piece[:1] == b"!":
            encoder.resize(SIZES[len(piece) % len(SIZES)])
            continue
        headers = [_header(part) for part in piece.split(b",")[:16]]
        block = encoder.encode(headers)
        demand_equal(ours.decode(block), headers, "our decoder reads what our encoder wrote")
        demand_equal(_decoded(other, block), headers, "another decoder reads what our encoder wrote")


def _header(text: bytes) -> Header:
    name, separator, value = text.partition(b"=")
    return name, value, not separator


def _decoded(decoder: Any, block: bytes) -> list[Header] | None:
    """The other decoder knows a header that must not be indexed by its class."""
    try:
        found = decoder.decode(block, raw=True)
    except (HPACKError, OversizedHeaderListError):
        return None
    return [(bytes(each[0]), bytes(each[1]), not each.indexable) for each in found]


BLOCKS: Final[tuple[Callable[[bytes], None], ...]] = (blocks_of_a_peer, blocks_of_ours)


def header_block(data: bytes) -> None:
    """Compressed headers: blocks of a peer, and blocks of ours, beside the decoder of another project."""
    check, data = choose(data, BLOCKS)
    check(data)
