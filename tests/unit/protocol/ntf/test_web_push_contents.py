from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import nonces
from tests.unit.protocol.ntf.appendix_a import CLIENT_DH, CODE, PUSH_NONCE, ROUTER_DH
from tocsin.crypto.boxes import box_key
from tocsin.crypto.web_push import MAX_PADDED_BYTES
from tocsin.errors import DecodeError
from tocsin.protocol.ntf.pushes import (
    CheckMessagesPush,
    MessagePush,
    Push,
    VerificationPush,
    seal_code,
    seal_notifications,
)
from tocsin.protocol.ntf.web_push_contents import (
    MAX_CONTENT_BYTES,
    PADDED_CONTENT_BYTES,
    PADDED_JSON_BYTES,
    parse_web_push_content,
    web_push_content,
)

KEY = box_key(CLIENT_DH.agree(ROUTER_DH.public))
sealed = st.binary(min_size=16, max_size=3088)
pushes = (
    st.just(CheckMessagesPush())
    | st.builds(VerificationPush, nonces, sealed)
    | st.builds(MessagePush, nonces, sealed)
)


@given(pushes)
def test_pushes_are_read_back(push: Push) -> None:
    content = web_push_content(push)
    assert parse_web_push_content(content) == push
    assert len(content) < PADDED_CONTENT_BYTES


def test_contents_begin_with_their_kind() -> None:
    box = b"x" * 16
    assert web_push_content(VerificationPush(PUSH_NONCE, box)) == b"V" + PUSH_NONCE + box
    assert web_push_content(MessagePush(PUSH_NONCE, box)) == b"M" + PUSH_NONCE + box
    assert web_push_content(CheckMessagesPush()) == b"C"


def test_what_a_router_pushes_fits_one_body() -> None:
    for push in (seal_code(KEY, PUSH_NONCE, CODE), seal_notifications(KEY, PUSH_NONCE, [])):
        assert len(web_push_content(push)) == MAX_CONTENT_BYTES
    assert MAX_CONTENT_BYTES < PADDED_CONTENT_BYTES <= MAX_PADDED_BYTES
    assert PADDED_JSON_BYTES <= MAX_PADDED_BYTES


def test_content_that_is_cut_or_too_long_is_refused() -> None:
    content = web_push_content(seal_code(KEY, PUSH_NONCE, CODE))
    for length in range(1 + 24 + 16):
        with pytest.raises(DecodeError):
            parse_web_push_content(content[:length])
    with pytest.raises(DecodeError, match="content of 3114 bytes"):
        parse_web_push_content(content + b"x")


@pytest.mark.parametrize("content", [b"", b"X", b"v" + bytes(100), b"CC", b"C" + bytes(100), b"\0", b"[]"])
def test_other_kinds_are_refused(content: bytes) -> None:
    with pytest.raises(DecodeError, match="V, M or C"):
        parse_web_push_content(content)


@pytest.mark.parametrize("content", [b"{}", b"{", b'{"message":"x"}', b'{"aps":{}}'])
def test_json_that_is_no_push_is_refused(content: bytes) -> None:
    with pytest.raises(DecodeError, match="not a push"):
        parse_web_push_content(content)
