from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import DecodeError, LocalProtocolError
from tocsin.wire.padding import pad, unpad


def test_padding_has_the_form_of_appendix_a1() -> None:
    assert pad(b"abc", 8).hex() == "0003616263232323"


@given(st.binary(max_size=300), st.integers(0, 50))
def test_what_was_padded_is_unpadded(message: bytes, room: int) -> None:
    padded = pad(message, len(message) + 2 + room)
    assert len(padded) == len(message) + 2 + room
    assert unpad(padded) == message


def test_the_filler_is_not_looked_at() -> None:
    assert unpad(b"\x00\x01axyz") == b"a"


@pytest.mark.parametrize("size", [-1, 0, 1, 4])
def test_a_message_that_does_not_fit_is_refused(size: int) -> None:
    with pytest.raises(LocalProtocolError, match="do not fit"):
        pad(b"abc", size)


def test_the_longest_message_has_65533_bytes() -> None:
    assert unpad(pad(bytes(65533), 70000)) == bytes(65533)
    with pytest.raises(LocalProtocolError):
        pad(bytes(65534), 70000)


@pytest.mark.parametrize("padded", [b"", b"\x00", b"\x00\x01", b"\x00\x04abc", b"\xff\xff"])
def test_padding_shorter_than_it_says_is_refused(padded: bytes) -> None:
    with pytest.raises(DecodeError, match="shorter"):
        unpad(padded)


@given(st.binary(max_size=40))
def test_any_bytes_unpad_or_are_refused(padded: bytes) -> None:
    try:
        message = unpad(padded)
    except DecodeError:
        return
    assert padded[2:].startswith(message)
