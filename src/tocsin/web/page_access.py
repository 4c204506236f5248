"""Access rules: who may see the page and press its buttons. Pure.

On a loopback address everyone on the machine may, as with the metrics. `Host` must then name this machine, so that a
foreign name pointed at it (DNS rebinding) gets nothing. On any other address the page needs a token: the printed
address carries it, and a cookie that scripts cannot read keeps it. A request that changes something must come from the
page itself: it needs a header that browsers let no other site send.
"""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Final

from tocsin.operate.http_messages import HttpRequest

TOKEN_PARAMETER: Final = "token"  # noqa: S105 - a name, not a token
SCRIPT_HEADER: Final = "x-tocsin"
_SAME_SITE: Final = frozenset({"", "same-origin", "none"})


@dataclass(frozen=True, slots=True)
class Refusal:
    status: HTTPStatus
    text: str


@dataclass(frozen=True, slots=True)
class TokenShown:
    """The address carried the token. It becomes a cookie, and the browser is sent to the address without it."""

    cookie: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Access:
    token: str | None = field(repr=False)
    """None if the page needs no token."""
    port: int
    """Part of the cookie's name, because all ports of a host share their cookies."""

    def judge(self, request: HttpRequest) -> Refusal | TokenShown | None:
        """None if the request may be answered."""
        if self.token is None:
            if not is_loopback(host_of(request.header("host"))):
                return Refusal(
                    HTTPStatus.MISDIRECTED_REQUEST,
                    "this page is served for localhost only: open it as http://localhost",
                )
        elif TOKEN_PARAMETER in request.query:
            if not _same(request.query[TOKEN_PARAMETER], self.token):
                return Refusal(
                    HTTPStatus.FORBIDDEN, "wrong token: open the address that was printed at the start"
                )
            return TokenShown(f"{self._cookie_name}={self.token}; HttpOnly; SameSite=Strict; Path=/")
        elif not _same(self._cookie(request), self.token):
            return Refusal(
                HTTPStatus.UNAUTHORIZED,
                "open the address that was printed at the start: it carries the token",
            )
        return None if request.method == "GET" else _foreign(request)

    @property
    def _cookie_name(self) -> str:
        return f"tocsin-{self.port}"

    def _cookie(self, request: HttpRequest) -> str:
        try:
            found = SimpleCookie(request.header("cookie")).get(self._cookie_name)
        except CookieError:
            return ""
        return "" if found is None else found.value


def _foreign(request: HttpRequest) -> Refusal | None:
    origin = request.header("origin")
    host = request.header("host")
    comes_from_the_page = (
        request.header(SCRIPT_HEADER) == "1"
        and origin in ("", f"http://{host}", f"https://{host}")
        and request.header("sec-fetch-site") in _SAME_SITE
    )
    return (
        None
        if comes_from_the_page
        else Refusal(HTTPStatus.FORBIDDEN, "only the page itself may send this request")
    )


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def host_of(header: str) -> str:
    """The name in a `Host` header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def is_loopback(host: str) -> bool:
    """Whether a name or an address can only be this machine."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
