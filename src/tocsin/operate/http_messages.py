"""The head of an HTTP/1.1 request, read strictly (RFC 9112, sections 3 and 5)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

MAX_HEAD_BYTES: Final = 8192

_REQUEST_LINE: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/1\.([01])")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_SINGLE: Final = frozenset({"host", "content-length", "content-type", "origin", "cookie", "x-tocsin"})
"""Two of them may mean one thing to us and another to a proxy."""
_MOST_PARAMETERS: Final = 16


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    """May hold the token."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By their names in small letters."""

    def header(self, name: str) -> str:
        """Empty if there is none."""
        return self.headers.get(name, "")

    @property
    def has_body(self) -> bool:
        return "content-length" in self.headers or "transfer-encoding" in self.headers


def parse_head(head: bytes) -> HttpRequest | HTTPStatus:
    """Of a request up to its empty line; or what it deserves."""
    request_line, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    request = _REQUEST_LINE.fullmatch(request_line)
    if request is None:
        return HTTPStatus.BAD_REQUEST
    headers: dict[str, str] = {}
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            return HTTPStatus.BAD_REQUEST
        name = found[1].decode("ascii").lower()
        if name in headers and name in _SINGLE:
            return HTTPStatus.BAD_REQUEST
        headers[name] = found[2].decode("latin-1").rstrip(" \t")
    method, target, minor_version = (part.decode("ascii") for part in request.groups())
    if minor_version == "1" and "host" not in headers:
        return HTTPStatus.BAD_REQUEST
    path, _, query = target.partition("?")
    try:
        parameters = dict(parse_qsl(query, max_num_fields=_MOST_PARAMETERS))
    except ValueError:
        return HTTPStatus.BAD_REQUEST
    return HttpRequest(method, path, parameters, headers)
