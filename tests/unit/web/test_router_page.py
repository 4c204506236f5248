"""The page of an NTF router."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from tests.doubles.ntf_process import NtfFolders, NtfProcess
from tests.doubles.small_lake import make_small_lake


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
    process = await folders.spawn("--web", "0", "--lake", str(tmp_path / "lake"))
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


async def test_an_ntf_router_refuses_an_invalid_place(tmp_path: Path) -> None:
    folders = NtfFolders(tmp_path)
    code, output = await folders.outcome("--web", "nonsense")
    assert code == 1
    assert "--web nonsense: expected a port" in output
