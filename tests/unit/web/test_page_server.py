"""The page's server over a real socket, the value of `--web`, and the address that is printed."""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from tocsin.errors import ConfigError
from tocsin.operate.http_messages import MAX_HEAD_BYTES
from tocsin.web.page_events import PageEvents
from tocsin.web.page_server import (
    MAX_BODY_BYTES,
    NotDone,
    PageLimits,
    PagePlace,
    PageServer,
    Site,
    serve_page,
    static_files,
)

HOST = "127.0.0.1"
TOKEN = "a-token"


async def echo(asked: Mapping[str, Any]) -> Any:
    if "refuse" in asked:
        raise NotDone("it is too late", HTTPStatus.CONFLICT)
    return dict(asked)


def server(token: str | None = None, limits: PageLimits | None = None) -> PageServer:
    events = PageEvents(lambda: [("all", {"n": 1})])
    site = Site(events, {"/api/read": echo}, {"/api/do": echo})
    return PageServer(site, host=HOST, port=0, token=token, limits=limits)


async def ask(port: int, request: bytes) -> tuple[int, str, bytes]:
    """Status, head and body."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(request)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
        await writer.wait_closed()
    return int(head.split()[1]), head.decode(), body


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def post(body: bytes, *headers: str, path: str = "/api/do", kind: str = "application/json") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def sent(content: object, *headers: str, **more: Any) -> bytes:
    body = json.dumps(content).encode()
    return post(body, "X-Tocsin: 1", f"Content-Length: {len(body)}", *headers, **more)


async def test_every_file_is_served_with_its_type_and_a_strict_policy() -> None:
    async with server() as served:
        for path, file in static_files().items():
            status, head, body = await ask(served.port, get(path))
            assert (status, body) == (200, file.content)
            assert f"Content-Type: {file.content_type}" in head
            assert "Content-Security-Policy: default-src 'self';" in head
            assert "X-Content-Type-Options: nosniff" in head
            assert "Cache-Control: no-store" in head
    assert {"/", "/index.html", "/app.js", "/page.css"} <= static_files().keys()


def test_every_file_of_the_page_is_in_the_package() -> None:
    root = Path(__file__).resolve().parents[3]
    data = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "tocsin"
    ]
    package = root / "src" / "tocsin"
    packed = {path for pattern in data for path in package.glob(pattern)}
    assert set((package / "web" / "static").iterdir()) <= packed


def test_the_page_names_no_other_host_and_has_no_script_or_style_inside() -> None:
    for path, file in static_files().items():
        text = file.content.decode().replace("http://www.w3.org/2000/svg", "")
        assert "//" not in text.replace("// ", ""), path
    page = static_files()["/"].content.decode()
    assert "<script>" not in page
    assert " style=" not in page
    assert " onclick=" not in page


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/nothing"), 404),
        (get("/../page_server.py"), 404),
        (get("/static/index.html"), 404),
        (get("/api/do"), 405),
        (sent({}, path="/api/read"), 405),
        (sent({}, path="/"), 405),
        (sent({}, path="/api/nothing"), 404),
        (get("/", "Content-Length: 0"), 400),
        (get("/", "Host: b"), 400),
        (b"nonsense\r\n\r\n", 400),
        (get("/").replace(b"localhost", b"evil.example"), 421),
        (post(b"{}", "Content-Length: 2"), 403),
        (sent({}, "Origin: http://evil.example"), 403),
        (sent({}, kind="text/plain"), 415),
        (post(b"{}", "X-Tocsin: 1"), 411),
        (post(b"{}", "X-Tocsin: 1", "Content-Length: -2"), 400),
        (post(b"0\r\n\r\n", "X-Tocsin: 1", "Transfer-Encoding: chunked"), 411),
        (post(b"", "X-Tocsin: 1", f"Content-Length: {MAX_BODY_BYTES + 1}"), 413),
        (post(b"", "X-Tocsin: 1", "Content-Length: " + "9" * 20), 413),
        (post(b"", "X-Tocsin: 1", "Content-Length: " + "9" * 50), 400),
        (post(b"{}", "X-Tocsin: 1", "Content-Length: 2", "Content-Length: 2"), 400),
        (post(b"{}", "X-Tocsin: 1", "Content-Length: 2, 2"), 400),
        (post(b"{}", "X-Tocsin: 1", "X-Tocsin: 1", "Content-Length: 2"), 400),
        (post(b"{]", "X-Tocsin: 1", "Content-Length: 2"), 400),
        (sent([1]), 400),
        (sent("x"), 400),
        (get("/", "X: " + "x" * 2 * MAX_HEAD_BYTES), 431),
    ],
)
async def test_requests_are_judged_strictly(request_: bytes, status: int) -> None:
    async with server() as served:
        assert (await ask(served.port, request_))[0] == status


async def test_deeply_nested_json_is_refused_and_disturbs_nobody() -> None:
    async with server() as served:
        deep = b"[" * (MAX_BODY_BYTES - 1)
        request = post(deep, "X-Tocsin: 1", f"Content-Length: {len(deep)}")
        assert (await ask(served.port, request))[0] == 400
        assert (await ask(served.port, get("/")))[0] == 200


async def test_reads_and_actions_answer_with_json() -> None:
    async with server() as served:
        status, head, body = await ask(served.port, get("/api/read?number=7&x=%C3%BC"))
        assert (status, json.loads(body)) == (200, {"number": "7", "x": "ü"})
        assert "Content-Type: application/json" in head
        status, _, body = await ask(served.port, sent({"text": "ü"}))
        assert (status, json.loads(body)) == (200, {"text": "ü"})
        status, _, body = await ask(served.port, sent({"refuse": 1}))
        assert (status, json.loads(body)) == (409, {"error": "it is too late"})


async def test_with_a_token_nothing_is_served_without_it() -> None:
    async with server(TOKEN) as served:
        for path in ("/", "/app.js", "/api/read", "/api/events", "/nothing"):
            assert (await ask(served.port, get(path)))[0] == 401
        assert (await ask(served.port, sent({})))[0] == 401
        assert (await ask(served.port, get("/?token=wrong")))[0] == 403
        status, head, _ = await ask(served.port, get(f"/?token={TOKEN}"))
        assert status == 303
        assert "Location: /\r\n" in head
        cookie = f"Cookie: tocsin-{served.port}={TOKEN}"
        assert f"Set-Cookie: tocsin-{served.port}={TOKEN}; HttpOnly; SameSite=Strict" in head
        assert (await ask(served.port, get("/", cookie)))[0] == 200
        assert (await ask(served.port, sent({}, cookie)))[0] == 200
        foreign = get("/", cookie).replace(b"localhost", b"ntf.example")
        assert (await ask(served.port, foreign))[0] == 200


async def test_a_subscriber_gets_the_whole_state_and_then_every_change() -> None:
    events = PageEvents(lambda: [("all", {"n": 1}), ("more", [])])
    async with PageServer(Site(events), host=HOST, port=0, token=None) as served:
        reader, writer = await asyncio.open_connection(HOST, served.port)
        writer.write(get("/api/events"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Content-Type: text/event-stream" in head
        assert b"Content-Security-Policy" in head
        assert await reader.readuntil(b"\n\n") == b'event: all\ndata: {"n":1}\n\n'
        assert await reader.readuntil(b"\n\n") == b"event: more\ndata: []\n\n"
        events.send("change", "line\nbreak")
        assert await reader.readuntil(b"\n\n") == b'event: change\ndata: "line\\nbreak"\n\n'
        assert events.subscribers == 1
        writer.close()
        await writer.wait_closed()
    assert events.subscribers == 0


async def test_a_silent_client_is_disconnected() -> None:
    async with server(limits=PageLimits(seconds=0.01)) as served:
        reader, writer = await asyncio.open_connection(HOST, served.port)
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("8080", PagePlace("127.0.0.1", 8080)),
        ("0.0.0.0:80", PagePlace("0.0.0.0", 80)),  # noqa: S104 - nothing is bound
        ("[::1]:0", PagePlace("::1", 0)),
        ("ntf.example:65535", PagePlace("ntf.example", 65_535)),
    ],
)
def test_a_place_is_a_port_with_or_without_a_host(text: str, place: PagePlace) -> None:
    assert PagePlace.parse(text) == place


@pytest.mark.parametrize("text", ["", "off", ":80", "host:", "::1:80", "65536", "a:b:80", "80 "])
def test_an_invalid_place_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:8080"):
        PagePlace.parse(text)


async def test_a_token_is_in_the_address_only_if_others_can_reach_the_page() -> None:
    site = Site(PageEvents(list))
    async with serve_page(site, PagePlace("127.0.0.1", 0)) as address:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
    async with serve_page(site, PagePlace("0.0.0.0", 0)) as address:  # noqa: S104 - what is tested
        assert re.fullmatch(r"http://0\.0\.0\.0:\d+/\?token=[\w-]{32}", address)
