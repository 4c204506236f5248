from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import DecodeError
from tocsin.wire.base64url import decode_base64url, encode_base64url


@given(st.binary(min_size=1, max_size=100))
def test_text_is_read_back_with_and_without_padding(data: bytes) -> None:
    text = encode_base64url(data)
    assert len(text) % 4 == 0
    assert decode_base64url(text) == data
    assert decode_base64url(text.rstrip("=")) == data


def test_the_url_alphabet_is_used() -> None:
    assert encode_base64url(b"\xfb\xff") == "-_8="


@pytest.mark.parametrize("text", ["", "=", "a", "abcde", "ab=c", "a===", "+/==", "ab c", "ab\n", "ä", "٣٣٣٣"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        decode_base64url(text)
