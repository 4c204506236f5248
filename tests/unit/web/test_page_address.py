"""The value of `--web`, and the address that is printed."""

from __future__ import annotations

import re

import pytest

from tocsin.errors import ConfigError
from tocsin.web.page_address import PagePlace, serve_page
from tocsin.web.page_events import PageEvents
from tocsin.web.page_server import Site


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
