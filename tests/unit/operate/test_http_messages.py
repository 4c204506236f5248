"""Heads of requests, parsed strictly, and answers."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from tocsin.operate.http_messages import HttpAnswer, HttpRequest, encode_head, parse_head


def head(*headers: str, line: str = "GET / HTTP/1.1") -> bytes:
    return "\r\n".join([line, "Host: a", *headers, "", ""]).encode("latin-1")


def test_a_request_has_its_path_query_and_headers() -> None:
    request = parse_head(head("X-Some:  thing ", line="POST /a/b?x=1&y=%C3%BC HTTP/1.1"))
    assert request == HttpRequest("POST", "/a/b", {"x": "1", "y": "ü"}, {"host": "a", "x-some": "thing"})
    assert isinstance(request, HttpRequest)
    assert request.header("x-some") == "thing"
    assert request.header("x-other") == ""
    assert not request.has_body


def test_a_token_in_the_query_is_not_in_the_repr() -> None:
    assert "secret" not in repr(parse_head(head("Cookie: secret", line="GET /?token=secret HTTP/1.1")))


@pytest.mark.parametrize("header", ["Content-Length: 0", "Content-Length: 5", "Transfer-Encoding: chunked"])
def test_a_body_is_recognised_by_its_framing(header: str) -> None:
    request = parse_head(head(header))
    assert isinstance(request, HttpRequest)
    assert request.has_body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: a\r\n",
        b"GET / HTTP/1.1\nHost: a\r\n\r\n",
        head(" folded"),
        head("X: a\x7fb"),
        head("X: a\x00b"),
        head("X: a\rb"),
        head("Content-Length: 1", "Content-Length: 1"),
        head("Content-Length: 1", "X: y", "content-length: 1"),
        head("Content-Length: 1, 1"),
        head("Content-Length: +1"),
        head("Content-Length: 1", "Content-Length: 2"),
        head("Transfer-Encoding: gzip"),
        head("Cookie: a", "Cookie: a"),
        head("Origin: a", "origin: a"),
        head(line="GET / HTTP/1.2"),
        head(line="GET / HTTP/2.0"),
        head(line="GET /\xe9 HTTP/1.1"),
        head(line="GET /?" + "&".join(["x=1"] * 17) + " HTTP/1.1"),
    ],
    ids=lambda data: repr(data[:50]),
)
def test_a_head_that_others_may_read_differently_is_refused(data: bytes) -> None:
    assert parse_head(data) is HTTPStatus.BAD_REQUEST


def test_an_answer_ends_its_connection_and_is_not_cached() -> None:
    assert HttpAnswer.of_status(HTTPStatus.NOT_FOUND, headers=("X: y",)).encode() == (
        b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 10\r\nX: y\r\n"
        b"Cache-Control: no-store\r\nConnection: close\r\n\r\nNot Found\n"
    )
    assert b"Content-Length" not in encode_head(HTTPStatus.OK, "text/event-stream")
