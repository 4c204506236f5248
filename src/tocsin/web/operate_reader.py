"""Keeps the view `Operate` current: reads the routers' metrics and the pipeline's tables again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from tocsin.errors import StoreError
from tocsin.operate.http_client import get_page
from tocsin.operate.operator_pages import METRICS_PATH
from tocsin.web.metric_readings import MetricReadings
from tocsin.web.operate_view import Readings, TableReadings, operate_view
from tocsin.web.page_events import PageEvents

SCRAPE_SECONDS: Final = 5.0
OPERATE: Final = "operate"
"""The event that carries the view."""
JOB_AWAY: Final = "simplex_ntf_deliver_job_away"
TABLES_EVERY: Final = 10.0


async def scrape(host: str, port: int) -> str:
    """The metrics of a router on this machine. Raises OSError or TimeoutError."""
    _, text = await get_page(host, port, METRICS_PATH, SCRAPE_SECONDS)
    return text


class OperateReader:
    """Holds the newest view. The view names what cannot be read, and the next turn tries it again."""

    def __init__(
        self, metrics: Mapping[str, Callable[[], Awaitable[str]]], lake: Path | None, no_lake: str = ""
    ) -> None:
        """`metrics` has those of `ntf`, and of `smp` if known. `no_lake` says why there are no tables."""
        self._metrics = metrics
        self._lake = lake
        self._tables: TableReadings | None = None
        self._tables_problem = "not read yet" if lake is not None else no_lake
        self._tables_at = 0.0
        self.view: dict[str, Any] = operate_view(Readings(), time.time())
        self.job_away = False
        """The NTF router said last that the `deliver` job is late or gone."""

    async def read(self) -> dict[str, Any]:
        found: dict[str, MetricReadings] = {}
        missing: dict[str, str] = {}
        for name, text in self._metrics.items():
            try:
                found[name] = MetricReadings.parse(await text())
            except (OSError, TimeoutError):
                missing[f"{name.upper()} router"] = "does not answer: is it running?"
        await self._read_tables()
        if self._tables is None:
            missing["tables"] = self._tables_problem
        readings = Readings(found.get("ntf"), found.get("smp"), self._tables, missing)
        self.view = operate_view(readings, time.time())
        if readings.ntf is not None:
            self.job_away = bool(readings.ntf.total(JOB_AWAY))
        return self.view

    async def _read_tables(self) -> None:
        now = time.monotonic()
        if self._lake is None or (self._tables_at and now - self._tables_at < TABLES_EVERY):
            return
        self._tables_at = now
        try:
            self._tables = await asyncio.to_thread(_read_pipeline_tables, self._lake)
            self._tables_problem = "the pipeline has not built any yet"
        except ImportError:
            self._tables_problem = "the pipeline is not installed: pip install 'tocsin[pipeline]'"
        except (OSError, StoreError, ValueError) as error:
            self._tables_problem = f"cannot be read: {error}"

    async def keep_reading(self, events: PageEvents, *, every: float) -> NoReturn:
        """Reads at this interval while a page is open: counting a large store has a cost."""
        while True:
            if events.subscribers:
                events.send(OPERATE, await self.read())
            await asyncio.sleep(every)


def _read_pipeline_tables(lake: Path) -> TableReadings | None:
    from tocsin.web.pipeline_tables import read_tables  # a router without the pipeline lacks its packages

    return read_tables(lake)
