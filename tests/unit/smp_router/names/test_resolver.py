"""The resolver of names over HTTP: what it is asked, and what becomes of its answers."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from tests.doubles.name_resolver import RECORD, answer, fake_resolver
from tests.doubles.routers import HOST, running_router
from tests.doubles.smp_harness import until
from tocsin.operate.http_client import HttpEndpoint
from tocsin.protocol.error_codes import NameFault, ResolverFault, RouterError
from tocsin.smp_router.names import resolver as resolver_module
from tocsin.smp_router.names.resolver import NameResolver
from tocsin.smp_router.settings.settings import SmpNameSettings

NAME = "alice.simplex"
PATH = f"/resolve/{NAME}"


def settings(endpoint: str) -> SmpNameSettings:
    return SmpNameSettings(enabled=True, endpoint=endpoint, timeout=5.0)


async def test_record_is_what_the_resolver_says() -> None:
    async with fake_resolver() as fake:
        fake.answers["/v1" + PATH] = answer()
        assert await NameResolver(settings(fake.endpoint + "/v1")).resolve(NAME) == RECORD
        [head] = fake.requests
        assert head.startswith(f"GET /v1{PATH} HTTP/1.1\r\n")
        assert f"host: {HOST}:{fake.port}\r\n" in head.lower()
        assert "authorization" not in head.lower()


@pytest.mark.parametrize(
    ("auth", "header"),
    [("bearer t0ken", "Bearer t0ken"), ("basic user:pass", "Basic dXNlcjpwYXNz")],
)
async def test_resolver_is_asked_with_the_operators_secret(auth: str, header: str) -> None:
    async with fake_resolver() as fake:
        await NameResolver(replace(settings(fake.endpoint), auth=auth)).resolve(NAME)
        assert f"authorization: {header}\r\n".lower() in fake.requests[0].lower()


async def test_secret_is_not_sent_unencrypted_to_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings refuse it already."""
    monkeypatch.setattr(resolver_module, "may_authorize", lambda _endpoint: False)
    async with fake_resolver() as fake:
        await NameResolver(replace(settings(fake.endpoint), auth="bearer t0ken")).resolve(NAME)
        assert "t0ken" not in fake.requests[0]


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (answer("404 Not Found", b""), NameFault.NOT_FOUND),
        (answer("400 Bad Request", b"x"), NameFault.NOT_FOUND),
        (answer("500 Oops", b"{}"), ResolverFault("HTTP 500")),
        (answer("204 No Content", b""), ResolverFault("HTTP 204")),
        (answer("301 Moved", b"", "Location: /elsewhere"), ResolverFault("HTTP 301")),
        (answer(body=b"{"), ResolverFault("invalid response")),
        (answer(body=b'{"name":7}'), ResolverFault("invalid response")),
        (answer(body=b"x" * 16_001), ResolverFault("response too large")),
        (answer(body=b'{"name":"' + b"\\u00e4\\u20ac" * 1000 + b'"}'), None),
        (b"SSH-2.0-OpenSSH\r\n\r\n", ResolverFault("invalid response")),
        (b"", ResolverFault("transport failure")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{", ResolverFault("invalid response")),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 40_000 + b"\r\n\r\n", ResolverFault("invalid response")),
    ],
)
async def test_answers_become_errors_of_the_specification(raw: bytes, error: RouterError | None) -> None:
    async with fake_resolver() as fake:
        fake.answers[PATH] = raw
        fake.answers["/elsewhere"] = answer()
        found = await NameResolver(settings(fake.endpoint)).resolve(NAME)
        assert isinstance(found, bytes) if error is None else found == error
        assert len(fake.requests) == 1


async def test_longer_answer_than_allowed_is_refused_though_no_length_is_named() -> None:
    async with fake_resolver() as fake:
        fake.answers[PATH] = b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 3000 + RECORD
        found = await NameResolver(replace(settings(fake.endpoint), max_response_bytes=1024)).resolve(NAME)
        assert found == ResolverFault("response too large")


async def test_silent_resolver_and_none_at_all() -> None:
    async with fake_resolver() as fake:
        fake.held.clear()
        found = await NameResolver(replace(settings(fake.endpoint), timeout=0.1)).resolve(NAME)
        assert found == ResolverFault("timeout")
        endpoint = fake.endpoint
    assert await NameResolver(settings(endpoint)).resolve(NAME) == ResolverFault("transport failure")


async def test_certificate_of_the_resolver_is_verified() -> None:
    async with running_router() as router:
        endpoint = f"https://{HOST}:{router.address.location.port}"
        assert await NameResolver(settings(endpoint)).resolve(NAME) == ResolverFault("transport failure")


async def test_requests_of_all_clients_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver_module, "MAX_AT_ONCE", 2)
    async with fake_resolver() as fake:
        fake.answers[PATH] = answer()
        fake.held.clear()
        resolver = NameResolver(settings(fake.endpoint))
        asked = [asyncio.create_task(resolver.resolve(NAME)) for _ in range(5)]
        await until(lambda: len(fake.requests) == 2)
        fake.held.set()
        assert await asyncio.gather(*asked) == [RECORD] * 5


async def test_resolver_that_is_not_healthy_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_resolver() as fake:
        resolver = NameResolver(settings(fake.endpoint))
        fake.answers["/health"] = answer(body=b"fine")
        with caplog.at_level(logging.WARNING):
            await resolver.check()
            assert caplog.text == ""
            fake.answers["/health"] = answer("503 Busy", b"")
            await resolver.check()
    assert "it answers with status 503" in caplog.text
    await resolver.check()
    assert "is not healthy" in caplog.messages[-1]


async def test_anything_unexpected_is_an_error_of_the_resolver(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_endpoint: HttpEndpoint, _path: str) -> None:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(HttpEndpoint, "get", fail)
    resolver = NameResolver(settings(f"http://{HOST}:1"))
    assert await resolver.resolve(NAME) == ResolverFault("resolver error")
    assert "cannot ask the resolver of names" in caplog.text


async def test_silent_resolver_is_not_healthy(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_resolver() as fake:
        fake.held.clear()
        await NameResolver(replace(settings(fake.endpoint), timeout=0.1)).check()
    assert "it does not answer in time" in caplog.text
