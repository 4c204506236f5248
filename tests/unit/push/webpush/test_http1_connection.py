"""Answers in HTTP/1.1, however they arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import DecodeError
from tocsin.push.webpush.http1_connection import (
    MAX_HEAD_BYTES,
    MAX_LINE_BYTES,
    MAX_REST_BYTES,
    AnswerReader,
    Http1Answer,
)

CREATED = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nX: y\r\n\r\n"
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + CREATED
EMPTY = b"HTTP/1.1 204\r\n\r\n"
WAIT = b"HTTP/1.1 429 Too Many\r\nretry-AFTER:  7 \r\nContent-Length: 0\r\n\r\n"

WHOLE: list[tuple[bytes, Http1Answer]] = [
    (CREATED, Http1Answer(201, None)),
    (CHUNKED, Http1Answer(200, None)),
    (INTERIM, Http1Answer(201, None)),
    (EMPTY, Http1Answer(204, None)),
    (WAIT, Http1Answer(429, b"7")),
]


@pytest.mark.parametrize(("data", "answer"), WHOLE)
def test_an_answer_is_read_whole_or_byte_by_byte(data: bytes, answer: Http1Answer) -> None:
    at_once, bit_by_bit = AnswerReader(), AnswerReader()
    at_once.feed(data)
    for index in range(len(data)):
        assert not bit_by_bit.complete
        bit_by_bit.feed(data[index : index + 1])
    for reader in (at_once, bit_by_bit):
        assert (reader.answer, reader.complete, reader.reusable) == (answer, True, True)


NOT_REUSABLE = [
    b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Keep-Alive, Close\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nmore than it said",
    b"HTTP/1.1 204 No Content\r\n\r\nand some content",
]


@pytest.mark.parametrize("data", NOT_REUSABLE)
def test_a_connection_is_not_reused_after_an_answer_without_a_clear_end(data: bytes) -> None:
    reader = AnswerReader()
    reader.feed(data)
    assert reader.answer is not None
    assert (reader.complete, reader.reusable) == (True, False)


WRONG = [
    b"not HTTP\r\n\r\n",
    b"HTTP/2 200\r\n\r\n",
    b"HTTP/1.1 99 x\r\n\r\n",
    b"HTTP/1.1 600 x\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" * 5,
    b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nbad name: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * MAX_LINE_BYTES,
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD_BYTES,
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n",
]


@pytest.mark.parametrize("data", WRONG, ids=lambda data: repr(data[:60]))
def test_an_invalid_answer_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        AnswerReader().feed(data)


def test_bytes_after_the_end_are_refused() -> None:
    reader = AnswerReader()
    reader.feed(CREATED)
    with pytest.raises(DecodeError, match="after the end"):
        reader.feed(b"x")
    assert not reader.reusable


def test_an_endless_body_is_left_unread() -> None:
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(MAX_REST_BYTES // 1000 + MAX_HEAD_BYTES // 1000 + 1):
        assert not reader.complete
        reader.feed(b"3e3\r\n" + b"x" * 995 + b"\r\n")
    assert (reader.complete, reader.reusable) == (True, False)


@given(st.binary(max_size=200), st.sampled_from([b"", CREATED[:30], CHUNKED[:50]]))
def test_arbitrary_bytes_are_an_answer_or_refused(data: bytes, before: bytes) -> None:
    reader = AnswerReader()
    try:
        reader.feed(before + data)
    except DecodeError:
        return
    assert not reader.reusable or reader.answer is not None
