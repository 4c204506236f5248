"""Reads what the view `Operate` shows, again and again: metrics of routers, and the pipeline's tables."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from tocsin.errors import StoreError
from tocsin.web.event_stream import EventStream
from tocsin.web.metric_readings import MetricReadings
from tocsin.web.operate_view import Readings, TableReadings, operate_view

SCRAPE_SECONDS: Final = 5.0
OPERATE: Final = "operate"
"""The event that carries the view."""
TABLES_EVERY: Final = 10.0
_MOST_BYTES: Final = 4_000_000


async def scraped(host: str, port: int) -> str:
    """The metrics of a router on this machine. Raises OSError or TimeoutError."""
    async with asyncio.timeout(SCRAPE_SECONDS):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
            text = b""
            while len(text) < _MOST_BYTES and (part := await reader.read(65_536)):
                text += part
            return text.decode(errors="replace")
        finally:
            writer.close()


class OperateReader:
    """The newest view. Whatever cannot be read is named in it, and read again the next time."""

    def __init__(
        self, metrics: Mapping[str, Callable[[], Awaitable[str]]], lake: Path | None, no_lake: str = ""
    ) -> None:
        """`metrics`: of `ntf`, and of `smp` if that is known. `no_lake` says why there are no tables."""
        self._metrics = metrics
        self._lake = lake
        self._tables: TableReadings | None = None
        self._tables_problem = "not read yet" if lake is not None else no_lake
        self._tables_at = 0.0
        self.view: dict[str, Any] = operate_view(Readings(), time.time())

    async def read(self) -> dict[str, Any]:
        found: dict[str, MetricReadings] = {}
        missing: dict[str, str] = {}
        for name, text in self._metrics.items():
            try:
                found[name] = MetricReadings.parse(await text())
            except (OSError, TimeoutError):
                missing[f"{name.upper()} router"] = "it does not answer: is it running?"
        await self._read_tables()
        if self._tables is None:
            missing["tables"] = self._tables_problem
        readings = Readings(found.get("ntf"), found.get("smp"), self._tables, missing)
        self.view = operate_view(readings, time.time())
        return self.view

    async def _read_tables(self) -> None:
        now = time.monotonic()
        if self._lake is None or (self._tables_at and now - self._tables_at < TABLES_EVERY):
            return
        self._tables_at = now
        try:
            self._tables = await asyncio.to_thread(_tables, self._lake)
            self._tables_problem = "the pipeline has not made any yet"
        except ImportError:
            self._tables_problem = "the pipeline is not installed: pip install 'tocsin[pipeline]'"
        except (OSError, StoreError, ValueError) as error:
            self._tables_problem = f"they cannot be read: {error}"

    async def keep_reading(self, events: EventStream, *, every: float) -> NoReturn:
        """Every so many seconds while anybody looks: to count a large store costs something."""
        while True:
            if events.followers:
                events.tell(OPERATE, await self.read())
            await asyncio.sleep(every)


def _tables(lake: Path) -> TableReadings | None:
    from tocsin.web.pipeline_tables import (
        table_readings,  # a router without the pipeline has no such packages
    )

    return table_readings(lake)
