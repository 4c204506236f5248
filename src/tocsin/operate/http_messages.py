"""HTTP/1.1 for pages on an operator's port: one request, one answer, then the connection ends.

h11 parses the heads of requests. Some things that h11 accepts are refused here, because a proxy in front of us may read
them differently: lines that end in a bare LF, folded headers, DEL in a value, lists of lengths, and a second value for
a header that we act on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

import h11

MAX_HEAD_BYTES: Final = 8192
PLAIN_TEXT: Final = "text/plain; charset=utf-8"

_END_OF_HEAD: Final = b"\r\n\r\n"
_TOO_LENIENT: Final = re.compile(
    rb"(?<!\r)\n|\n[ \t]|\x7f|\ncontent-length:(?:[^\n]*,|.*\ncontent-length:)", re.DOTALL | re.IGNORECASE
)
_SINGLE: Final = frozenset({"host", "content-length", "content-type", "origin", "cookie", "x-tocsin"})
_VERSIONS: Final = frozenset({b"1.0", b"1.1"})
_MOST_PARAMETERS: Final = 16


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    """May hold the token."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By name in lower case."""

    def header(self, name: str) -> str:
        """The value, or an empty string."""
        return self.headers.get(name, "")

    @property
    def has_body(self) -> bool:
        return "content-length" in self.headers or "transfer-encoding" in self.headers


def parse_head(head: bytes) -> HttpRequest | HTTPStatus:
    """Parses a request up to and including its empty line; returns the status to answer with if it is malformed."""
    if _TOO_LENIENT.search(head) or not head.endswith(_END_OF_HEAD):
        return HTTPStatus.BAD_REQUEST
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    connection.receive_data(head)
    try:
        request = connection.next_event()
    except h11.RemoteProtocolError:
        return HTTPStatus.BAD_REQUEST
    if not isinstance(request, h11.Request) or request.http_version not in _VERSIONS:
        return HTTPStatus.BAD_REQUEST
    headers: dict[str, str] = {}
    for raw_name, value in request.headers:
        name = raw_name.decode("ascii")
        if name in headers and name in _SINGLE:
            return HTTPStatus.BAD_REQUEST
        headers[name] = value.decode("latin-1")
    path, _, query = request.target.decode("ascii").partition("?")
    try:
        parameters = dict(parse_qsl(query, max_num_fields=_MOST_PARAMETERS))
    except ValueError:
        return HTTPStatus.BAD_REQUEST
    return HttpRequest(request.method.decode("ascii"), path, parameters, headers)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The last answer on its connection."""

    status: HTTPStatus
    content: bytes
    content_type: str = PLAIN_TEXT
    headers: tuple[str, ...] = ()
    """Whole lines, besides those that every answer has."""

    @classmethod
    def of_status(cls, status: HTTPStatus, text: str = "", headers: tuple[str, ...] = ()) -> HttpAnswer:
        """Says `text` to a person, or the standard phrase of the status."""
        return cls(status, f"{text or status.phrase}\n".encode(), headers=headers)

    def encode(self) -> bytes:
        return (
            encode_head(self.status, self.content_type, f"Content-Length: {len(self.content)}", *self.headers)
            + self.content
        )


def encode_head(status: HTTPStatus, content_type: str, *headers: str) -> bytes:
    """The head of an answer. Without a Content-Length, the body ends with the connection."""
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {content_type}",
        *headers,
        "Cache-Control: no-store",
        "Connection: close",
        "\r\n",
    )
    return "\r\n".join(lines).encode()
