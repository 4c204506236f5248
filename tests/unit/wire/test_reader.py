from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import i64s
from tocsin.errors import DecodeError
from tocsin.wire.reader import WireReader, as_text
from tocsin.wire.writer import WireWriter

READS: dict[str, Callable[[WireReader], object]] = {
    "u8": WireReader.u8,
    "u16": WireReader.u16,
    "i64": WireReader.i64,
    "short_bytes": WireReader.short_bytes,
    "large_bytes": WireReader.large_bytes,
    "short_text": WireReader.short_text,
    "boolean": WireReader.boolean,
    "maybe": lambda reader: reader.maybe(reader.short_bytes),
    "list": lambda reader: reader.non_empty_list(reader.short_bytes),
    "literal": lambda reader: reader.expect(b"AB"),
}


def test_i64_has_the_encoding_of_appendix_a1() -> None:
    assert WireReader(bytes((17, 34, 16, 244, 125, 233, 129, 21))).i64() == 1234567890123456789


@given(i64s)
def test_every_i64_is_read_back(value: int) -> None:
    assert WireReader(WireWriter().i64(value).done()).i64() == value


def test_times_are_whole_seconds() -> None:
    """C2: 2022-01-01T10:24:05Z."""
    assert WireWriter().i64(1641032645).done().hex() == "0000000061d02bc5"


@pytest.mark.parametrize("name", READS)
@given(data=st.binary(max_size=20))
def test_any_bytes_are_read_or_refused(name: str, data: bytes) -> None:
    reader = WireReader(data)
    try:
        READS[name](reader)
    except DecodeError:
        return
    assert 0 <= reader.position <= len(data)
    assert reader.position + reader.remaining == len(data)


@pytest.mark.parametrize("name", READS)
def test_nothing_is_refused(name: str) -> None:
    with pytest.raises(DecodeError):
        READS[name](WireReader(b""))


def test_booleans_are_letters() -> None:
    assert WireReader(b"T").boolean() is True
    assert WireReader(b"F").boolean() is False
    with pytest.raises(DecodeError, match="T or F expected"):
        WireReader(b"t").boolean()


def test_maybe_is_an_ascii_digit() -> None:
    assert WireReader(b"0").maybe(lambda: 1) is None
    reader = WireReader(b"1\x01x")
    assert reader.maybe(reader.short_bytes) == b"x"
    with pytest.raises(DecodeError, match="0 or 1 expected"):
        WireReader(b"\x00").maybe(lambda: 1)


def test_a_list_must_not_be_empty() -> None:
    with pytest.raises(DecodeError, match="empty list"):
        WireReader(b"\x00").non_empty_list(lambda: 1)
    reader = WireReader(b"\x02ab")
    assert reader.non_empty_list(lambda: reader.take(1)) == (b"a", b"b")


def test_until_stops_before_the_byte_or_at_the_end() -> None:
    reader = WireReader(b"ab cd")
    assert reader.until(b" ") == b"ab"
    reader.expect(b" ")
    assert reader.until(b" ") == b"cd"
    assert reader.until(b" ") == b""


def test_skip_steps_over_what_is_there() -> None:
    reader = WireReader(b"QUOTA x")
    assert not reader.skip(b"quota")
    assert reader.skip(b"QUOTA ")
    assert reader.rest() == b"x"
    assert reader.rest() == b""
    reader.expect_end()


def test_rewind_goes_back() -> None:
    reader = WireReader(b"abc")
    start = reader.position
    reader.take(2)
    reader.rewind(start)
    assert reader.rest() == b"abc"


def test_leftover_bytes_are_counted() -> None:
    with pytest.raises(DecodeError, match="2 bytes left over"):
        WireReader(b"ab").expect_end()


def test_a_literal_must_match() -> None:
    with pytest.raises(DecodeError, match="expected"):
        WireReader(b"AC").expect(b"AB")


def test_text_is_utf8() -> None:
    assert as_text("ä".encode()) == "ä"
    with pytest.raises(DecodeError, match="UTF-8"):
        as_text(b"\xff")


def test_an_id_is_not_empty() -> None:
    assert WireReader(b"\x01x").short_id() == b"x"
    with pytest.raises(DecodeError, match="empty id"):
        WireReader(b"\x00").short_id()
