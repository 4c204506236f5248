"""Header compression: the examples of RFC 7541, and the decoder of another project on blocks of any kind."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.header_targets import blocks_of_a_peer, blocks_of_ours
from tocsin.push.http2.hpack import (
    CompressionError,
    Decoder,
    Encoder,
    Header,
    decode_integer,
    encode_integer,
    encode_string,
)

LIMIT: Final = 65_536

INTEGERS: Final = [(10, 5, "0a"), (1337, 5, "1f9a0a"), (42, 8, "2a")]
"""C.1: value, bits of the prefix, encoding."""

SINGLE: Final = [
    ("400a637573746f6d2d6b65790d637573746f6d2d686561646572", (b"custom-key", b"custom-header", False)),
    ("040c2f73616d706c652f70617468", (b":path", b"/sample/path", False)),
    ("100870617373776f726406736563726574", (b"password", b"secret", True)),
    ("82", (b":method", b"GET", False)),
]
"""C.2: one header on a new connection."""

FIRST: Final = (
    (b":method", b"GET"),
    (b":scheme", b"http"),
    (b":path", b"/"),
    (b":authority", b"www.example.com"),
)
REQUESTS: Final = (
    FIRST,
    (*FIRST, (b"cache-control", b"no-cache")),
    (
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":path", b"/index.html"),
        (b":authority", b"www.example.com"),
        (b"custom-key", b"custom-value"),
    ),
)
PLAIN_REQUESTS: Final = (
    "828684410f7777772e6578616d706c652e636f6d",
    "828684be58086e6f2d6361636865",
    "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
)
"""C.3: three requests on one connection."""
HUFFMAN_REQUESTS: Final = (
    "828684418cf1e3c2e5f23a6ba0ab90f4ff",
    "828684be5886a8eb10649cbf",
    "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
)
"""C.4: the same with Huffman coding."""

DATES: Final = (b"Mon, 21 Oct 2013 20:13:21 GMT", b"Mon, 21 Oct 2013 20:13:22 GMT")
COOKIE: Final = b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"
ANSWERS: Final = (
    (
        (b":status", b"302"),
        (b"cache-control", b"private"),
        (b"date", DATES[0]),
        (b"location", b"https://www.example.com"),
    ),
    (
        (b":status", b"307"),
        (b"cache-control", b"private"),
        (b"date", DATES[0]),
        (b"location", b"https://www.example.com"),
    ),
    (
        (b":status", b"200"),
        (b"cache-control", b"private"),
        (b"date", DATES[1]),
        (b"location", b"https://www.example.com"),
        (b"content-encoding", b"gzip"),
        (b"set-cookie", COOKIE),
    ),
)
PLAIN_ANSWERS: Final = (
    "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54"
    "6e1768747470733a2f2f7777772e6578616d706c652e636f6d",
    "4803333037c1c0bf",
    "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a6970"
    "7738666f6f3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b20"
    "76657273696f6e3d31",
)
"""C.5: three answers on one connection with a table of 256 bytes, so that entries leave it."""
HUFFMAN_ANSWERS: Final = (
    "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
    "4883640effc1c0bf",
    "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af"
    "27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
)
"""C.6: the same with Huffman coding."""


def plain(headers: tuple[tuple[bytes, bytes], ...]) -> list[Header]:
    return [(name, value, False) for name, value in headers]


@pytest.mark.parametrize(("value", "bits", "wire"), INTEGERS)
def test_an_integer_has_the_encoding_of_the_standard(value: int, bits: int, wire: str) -> None:
    data = bytes.fromhex(wire)
    assert encode_integer(value, bits) == data
    assert decode_integer(data, 0, bits) == (value, len(data))


def test_an_integer_of_too_many_bytes_is_refused() -> None:
    with pytest.raises(CompressionError, match="too long"):
        decode_integer(bytes.fromhex("ff808080808001"), 0, 7)


@pytest.mark.parametrize(("wire", "header"), SINGLE)
def test_a_header_is_read_as_the_standard_says(wire: str, header: Header) -> None:
    assert Decoder(LIMIT).decode(bytes.fromhex(wire)) == [header]


@pytest.mark.parametrize(("wire", "header"), [each for each in SINGLE if each[0][:2] != "04"])
def test_a_header_is_written_as_the_standard_says(wire: str, header: Header) -> None:
    """But for C.2.2: a literal that may be indexed later is never written."""
    assert Encoder().encode([header]) == bytes.fromhex(wire)


@pytest.mark.parametrize("blocks", [PLAIN_REQUESTS, HUFFMAN_REQUESTS], ids=["plain", "huffman"])
def test_requests_are_read_as_the_standard_says(blocks: tuple[str, ...]) -> None:
    decoder = Decoder(LIMIT)
    assert [decoder.decode(bytes.fromhex(block)) for block in blocks] == [plain(each) for each in REQUESTS]


def test_requests_are_written_as_the_standard_says() -> None:
    encoder = Encoder()
    assert [encoder.encode(plain(each)).hex() for each in REQUESTS] == list(PLAIN_REQUESTS)


@pytest.mark.parametrize("blocks", [PLAIN_ANSWERS, HUFFMAN_ANSWERS], ids=["plain", "huffman"])
def test_answers_are_read_as_the_standard_says_while_entries_leave_the_table(blocks: tuple[str, ...]) -> None:
    decoder = Decoder(LIMIT)
    first, *others = blocks
    small_table = encode_integer(256, 5, 0x20)
    assert decoder.decode(small_table + bytes.fromhex(first)) == plain(ANSWERS[0])
    assert [decoder.decode(bytes.fromhex(each)) for each in others] == [plain(each) for each in ANSWERS[1:]]


def test_answers_are_written_as_the_standard_says_while_entries_leave_the_table() -> None:
    encoder = Encoder()
    encoder.resize(256)
    first, *others = [encoder.encode(plain(each)).hex() for each in ANSWERS]
    assert [first, *others] == [encode_integer(256, 5, 0x20).hex() + PLAIN_ANSWERS[0], *PLAIN_ANSWERS[1:]]


def test_a_table_that_shrank_for_a_moment_is_emptied_at_both_ends() -> None:
    encoder, decoder = Encoder(), Decoder(LIMIT)
    header: Header = (b"x", b"y", False)
    decoder.decode(encoder.encode([header]))
    encoder.resize(0)
    encoder.resize(4096)
    block = encoder.encode([header])
    assert block.startswith(b"\x20\x3f\xe1\x1f")  # 0, then 4096
    assert decoder.decode(block) == [header]


WRONG: Final = {
    "the index 0": "80",
    "an index beyond the fixed table": "be",
    "an integer without its end": "ff80",
    "an integer of too many bytes": "ff808080808001",
    "a string that is cut off": "400a6375",
    "a header without a value": "400161",
    "a larger table than allowed": "3fe21f",
    "a new table size after a header": "8220",
    "Huffman padding of a whole byte": "4082ffff0130",
    "Huffman padding with zeros": "4081000130",
    "the end of a Huffman string inside it": "4084ffffffff0130",
    "a byte that made a native decoder panic": "07",
}


@pytest.mark.parametrize("wire", WRONG.values(), ids=list(WRONG))
def test_what_the_standard_forbids_is_refused(wire: str) -> None:
    with pytest.raises(CompressionError):
        Decoder(LIMIT).decode(bytes.fromhex(wire))


@pytest.mark.parametrize("block", [*PLAIN_ANSWERS[:1], *HUFFMAN_ANSWERS[:1]])
def test_a_truncated_block_gives_fewer_headers_or_is_refused(block: str) -> None:
    whole = bytes.fromhex(block)
    for size in range(len(whole)):
        try:
            found = Decoder(LIMIT).decode(whole[:size])
        except CompressionError:
            continue
        assert found == plain(ANSWERS[0])[: len(found)]
        assert len(found) < len(ANSWERS[0])


def test_a_few_bytes_do_not_become_many_headers() -> None:
    encoder = Encoder()
    large: Header = (b"x", b"a" * 4000, False)
    bomb = encoder.encode([large] * 1000)
    assert len(bomb) < 6000
    with pytest.raises(CompressionError, match=f"more than {LIMIT} bytes"):
        Decoder(LIMIT).decode(bomb)


@given(st.binary(max_size=300))
def test_a_string_survives(data: bytes) -> None:
    found = Decoder(LIMIT).decode(b"\x00" + encode_string(b"x") + encode_string(data))
    assert found == [(b"x", data, False)]


@given(st.integers(0, 2), st.binary(max_size=400))
def test_two_decoders_read_the_same_headers(size: int, blocks: bytes) -> None:
    blocks_of_a_peer(bytes((size,)) + blocks)


PIECES: Final = st.sampled_from(
    ["a=b", "a=c", "bb=" + "y" * 30, ":status=200", "age=" + "1" * 200, "secret", ":path=/x"]
)
LINES: Final = st.one_of(st.lists(PIECES, max_size=4).map(",".join), st.integers(1, 5).map("!".__mul__))
"""Headers for a block, or a new size of the table."""


@given(st.lists(LINES, max_size=40).map("\n".join).map(str.encode))
def test_any_decoder_reads_what_our_encoder_writes(lines: bytes) -> None:
    blocks_of_ours(lines)
