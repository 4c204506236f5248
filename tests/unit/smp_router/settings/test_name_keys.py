"""Settings of the resolver of names."""

from __future__ import annotations

import pytest

from tocsin.smp_router.settings.keys import SMP_KEYS
from tocsin.smp_router.settings.name_keys import may_authorize, name_problems
from tocsin.smp_router.settings.settings import SmpNameSettings

[ENDPOINT] = (key.kind for key in SMP_KEYS if key.name == "resolver_endpoint")
[AUTH] = (key.kind for key in SMP_KEYS if key.name == "resolver_auth")


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("https://names.example", "https://names.example"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("https://[::1]:1/a/b/", "https://[::1]:1/a/b"),
    ],
)
def test_endpoints_are_absolute_urls(text: str, endpoint: str) -> None:
    assert ENDPOINT.read(text) == endpoint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "names.example",
        "/resolve",
        "https://",
        "https:///path",
        "ftp://names.example",
        "https://user@names.example",
        "https://user:pass@names.example",
        "https://names.example?x=1",
        "https://names.example#x",
        "https://names.example:0",
        "https://names.example:port",
        "https://names.example/a b",
        "https://names.example/\r\nX: y",
        "https://[names.example]",
        "https://nämes.example",
    ],
)
def test_other_texts_are_no_endpoints(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the key gives the message
        ENDPOINT.read(text)


@pytest.mark.parametrize(
    "text", ["bearer", "bearer ", "basic user", "Basic a:b", "bearer a\nb", "digest a:b"]
)
def test_authorization_is_bearer_or_basic(text: str) -> None:
    assert AUTH.read("bearer t0ken") == "bearer t0ken"
    assert AUTH.read("basic user:pass:word") == "basic user:pass:word"
    with pytest.raises(ValueError):  # noqa: PT011 - the key gives the message
        AUTH.read(text)


@pytest.mark.parametrize(
    ("endpoint", "may"),
    [
        ("https://names.example", True),
        ("http://names.example", False),
        ("http://localhost:1", True),
        ("http://127.0.0.2", True),
        ("http://[::1]:80", True),
        ("http://10.0.0.1", False),
        ("http://localhost.example", False),
    ],
)
def test_secrets_are_sent_encrypted_or_to_this_machine(endpoint: str, may: bool) -> None:
    assert may_authorize(endpoint) is may
    problems = list(name_problems(SmpNameSettings(endpoint=endpoint, auth="bearer x")))
    assert bool(problems) is not may
    assert list(name_problems(SmpNameSettings(enabled=True, endpoint=endpoint))) == []
