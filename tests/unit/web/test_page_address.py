"""Where the page is served, from what it reads, and the page of an NTF router."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.ntf_process import NtfFolders, NtfProcess
from tests.doubles.small_lake import make_small_lake
from tocsin.errors import ConfigError
from tocsin.web.event_stream import EventStream
from tocsin.web.operate_reader import OperateReader
from tocsin.web.page_address import PagePlace, serve_page
from tocsin.web.page_server import Site
from tocsin.web.pipeline_tables import read_tables


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
def test_what_is_no_place_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:8080"):
        PagePlace.parse(text)


async def test_a_token_is_in_the_address_only_if_others_can_reach_the_page() -> None:
    site = Site(EventStream(list))
    async with serve_page(site, PagePlace("127.0.0.1", 0)) as address:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
    async with serve_page(site, PagePlace("0.0.0.0", 0)) as address:  # noqa: S104 - what is tested
        assert re.fullmatch(r"http://0\.0\.0\.0:\d+/\?token=[\w-]{32}", address)


def test_tables_are_added_up_without_spark(tmp_path: Path) -> None:
    make_small_lake(tmp_path)
    tables = read_tables(tmp_path)
    assert tables is not None
    assert tables.funnel == {
        "received": 100,
        "accepted": 80,
        "superseded": 12,
        "failed": 5,
        "shed": 1,
        "pending": 2,
    }
    assert [at for at, _ in tables.hours] == ["2026-11-15 07:00", "2026-11-15 08:00"]
    assert tables.stages == (("NTF router", 2, (0.002, 0.002, 0.002)), ("provider", 2, (0.25, 0.25, 0.25)))
    assert tables.outcomes[0] == ("accepted", "", 80)
    assert tables.tokens == (("INVALID", "UNREGISTERED", 5),)
    [server] = tables.servers
    assert (server["received"], server["errors"], server["skew_us"]) == (100, 2, -3_000)
    assert tables.drift == (("smp1.example", "missing at SMP", 3),)
    assert read_tables(tmp_path / "nothing") is None


async def test_what_cannot_be_read_is_named_in_the_view(tmp_path: Path) -> None:
    async def away() -> str:
        raise ConnectionRefusedError

    (tmp_path / "funnel_hourly" / "_commits").mkdir(parents=True)
    (tmp_path / "funnel_hourly" / "_commits" / "0000000001.json").write_text("{")
    view = await OperateReader({"ntf": away}, tmp_path).read()
    assert view["missing"]["NTF router"] == "does not answer: is it running?"
    assert view["missing"]["tables"].startswith("cannot be read: ")
    view = await OperateReader({}, None, "the pipeline is off").read()
    assert view["missing"] == {"tables": "the pipeline is off"}
    view = await OperateReader({}, tmp_path / "nothing").read()
    assert view["missing"] == {"tables": "the pipeline has not built any yet"}


async def first_events(port: int, count: int) -> list[tuple[str, Any]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        events = []
        for _ in range(count):
            name, data = (await reader.readuntil(b"\n\n")).decode().splitlines()[:2]
            events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
        return events
    finally:
        writer.close()
        await writer.wait_closed()


async def test_an_ntf_router_serves_its_page_beside_its_devices(tmp_path: Path) -> None:
    folders = NtfFolders(tmp_path / "ntf")
    make_small_lake(tmp_path / "lake")
    process = await folders.spawn("--web", "0", "--web-lake", str(tmp_path / "lake"))
    router = NtfProcess(folders, process)
    try:
        async with asyncio.timeout(15):
            await router.until_it_serves()
        found = re.search(r"^Page: http://127\.0\.0\.1:(\d+)/$", "".join(router.output), re.MULTILINE)
        assert found, router.output
        (page, has), (operate, view) = await first_events(int(found[1]), 2)
        assert (page, has, operate) == ("page", {"live": False}, "operate")
        assert view["missing"] == {}
        assert [section["key"] for section in view["sections"]][:2] == ["funnel", "tables"]
    finally:
        await router.kill()


async def test_an_ntf_router_refuses_a_place_it_does_not_understand(tmp_path: Path) -> None:
    folders = NtfFolders(tmp_path)
    code, output = await folders.outcome("--web", "nonsense")
    assert code == 1
    assert "--web nonsense: expected a port" in output
