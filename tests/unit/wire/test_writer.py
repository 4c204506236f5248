from __future__ import annotations

import pytest

from tocsin.errors import LocalProtocolError
from tocsin.wire.writer import WireWriter, short


def test_primitives_have_the_encodings_of_appendix_a1() -> None:
    assert WireWriter().u16(18).done().hex() == "0012"
    assert WireWriter().i64(1234567890123456789).done().hex() == "112210f47de98115"
    assert WireWriter().maybe(None, lambda value: value).done().hex() == "30"
    out = WireWriter()
    assert out.maybe(b"x", out.short_bytes).done().hex() == "310178"


def test_calls_can_be_chained() -> None:
    out = WireWriter(b"TAG ").raw(b"r").short_bytes(b"ab").large_bytes(b"cd").short_text("é").boolean(True)
    assert out.boolean(False).done() == b"TAG r\x02ab\x00\x02cd\x02\xc3\xa9TF"


def test_a_list_has_a_count_byte() -> None:
    out = WireWriter()
    assert out.non_empty_list([b"a", b"b"], out.raw).done() == b"\x02ab"


@pytest.mark.parametrize("value", [-1, 65536])
def test_u16_is_16_bits(value: int) -> None:
    with pytest.raises(LocalProtocolError, match="16 bits"):
        WireWriter().u16(value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_i64_is_64_bits(value: int) -> None:
    with pytest.raises(LocalProtocolError, match="64 bits"):
        WireWriter().i64(value)


def test_short_bytes_do_not_wrap_their_length() -> None:
    assert short(bytes(255)) == b"\xff" + bytes(255)
    with pytest.raises(LocalProtocolError, match="256 bytes"):
        WireWriter().short_bytes(bytes(256))


def test_large_bytes_have_a_16_bit_length() -> None:
    assert len(WireWriter().large_bytes(bytes(65535)).done()) == 65537
    with pytest.raises(LocalProtocolError, match="65536 bytes"):
        WireWriter().large_bytes(bytes(65536))


@pytest.mark.parametrize("count", [0, 256])
def test_a_list_has_1_to_255_items(count: int) -> None:
    with pytest.raises(LocalProtocolError, match=f"not {count}"):
        WireWriter().non_empty_list([b""] * count, lambda item: item)
