"""Who may see the page and press its buttons."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from tocsin.operate.http_messages import HttpRequest
from tocsin.web.page_access import Access, Refusal, TokenShown, host_of, is_loopback

OPEN = Access(None, 8080)
GUARDED = Access("right", 8080)


def get(**headers: str) -> HttpRequest:
    return HttpRequest("GET", "/", {}, {"host": "localhost:8080", **headers})


def post(**headers: str) -> HttpRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpRequest("POST", "/api/send", {}, {"host": "localhost:8080", **named})


def status_of(access: Access, request: HttpRequest) -> HTTPStatus | None:
    judged = access.judge(request)
    assert not isinstance(judged, TokenShown)
    return None if judged is None else judged.status


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "127.0.0.1:8080", "127.1.2.3", "[::1]:8080", "LOCALHOST."]
)
def test_names_of_this_machine_are_served_without_a_token(host: str) -> None:
    assert status_of(OPEN, get(host=host)) is None


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.168.1.5",
        "[::2]",
    ],
)
def test_a_foreign_name_that_points_here_is_refused(host: str) -> None:
    assert status_of(OPEN, get(host=host)) is HTTPStatus.MISDIRECTED_REQUEST


def test_the_token_of_the_address_becomes_a_cookie_that_scripts_cannot_read() -> None:
    judged = GUARDED.judge(HttpRequest("GET", "/", {"token": "right"}, {"host": "ntf.example:8080"}))
    assert isinstance(judged, TokenShown)
    assert judged.cookie == "tocsin-8080=right; HttpOnly; SameSite=Strict; Path=/"
    assert "right" not in repr(judged)
    assert "right" not in repr(GUARDED)


@pytest.mark.parametrize("token", ["", "wrong", "righ", "rightt", "rïght"])
def test_a_wrong_token_is_refused(token: str) -> None:
    assert status_of(GUARDED, HttpRequest("GET", "/", {"token": token}, {})) is HTTPStatus.FORBIDDEN


@pytest.mark.parametrize(
    ("cookie", "status"),
    [
        ("tocsin-8080=right", None),
        ("other=1; tocsin-8080=right", None),
        ("tocsin-8081=right", HTTPStatus.UNAUTHORIZED),
        ("tocsin-8080=wrong", HTTPStatus.UNAUTHORIZED),
        ("tocsin-8080=", HTTPStatus.UNAUTHORIZED),
        ("", HTTPStatus.UNAUTHORIZED),
        (";;=;\x00", HTTPStatus.UNAUTHORIZED),
    ],
)
def test_every_request_needs_the_cookie(cookie: str, status: HTTPStatus | None) -> None:
    assert status_of(GUARDED, get(cookie=cookie)) is status


@pytest.mark.parametrize(
    "headers",
    [
        {"x_tocsin": "1"},
        {"x_tocsin": "1", "origin": "http://localhost:8080"},
        {"x_tocsin": "1", "origin": "https://localhost:8080", "sec_fetch_site": "same-origin"},
    ],
)
def test_the_page_itself_may_change_things(headers: dict[str, str]) -> None:
    assert status_of(OPEN, post(**headers)) is None


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x_tocsin": "0"},
        {"x_tocsin": "1", "origin": "http://evil.example"},
        {"x_tocsin": "1", "origin": "http://localhost:8081"},
        {"x_tocsin": "1", "origin": "null"},
        {"x_tocsin": "1", "sec_fetch_site": "cross-site"},
        {"x_tocsin": "1", "sec_fetch_site": "same-site"},
    ],
)
def test_other_sites_may_not_change_anything(headers: dict[str, str]) -> None:
    judged = OPEN.judge(post(**headers))
    assert isinstance(judged, Refusal)
    assert judged.status is HTTPStatus.FORBIDDEN


def test_the_port_is_removed_from_a_host_header() -> None:
    assert [host_of(each) for each in ("a:1", "a", "[::1]:1", "[::1]", "")] == ["a", "a", "::1", "::1", ""]
    assert not is_loopback("0.0.0.0")  # noqa: S104 - nothing is bound
    assert not is_loopback("")
