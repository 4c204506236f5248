"""The page of one NTF router: the view `Operate`, from the router's metrics and the pipeline's tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from tocsin.web.operate_reader import OPERATE, OperateReader
from tocsin.web.page_events import PageEvents
from tocsin.web.page_server import PagePlace, Site, serve_page

SECONDS_BETWEEN: Final = 5.0
NO_LAKE: Final = "no lake was named: start the router with tocsin ntf start --web … --lake FOLDER"


class ShowsMetrics(Protocol):
    """The part of a router that the page reads."""

    async def metrics(self) -> str:
        """Return the metrics as Prometheus reads them."""


@dataclass(frozen=True, slots=True)
class NtfPage:
    """Where to serve the page, and the lake whose tables it shows."""

    place: PagePlace
    lake: Path | None

    @asynccontextmanager
    async def served(self, operator: ShowsMetrics) -> AsyncIterator[str]:
        """Serve the page meanwhile; the value is the address to open. Raises ConnectFailed."""
        reader = OperateReader({"ntf": operator.metrics}, self.lake, NO_LAKE)

        def everything() -> Iterator[tuple[str, Any]]:
            yield "page", {"live": False}
            yield OPERATE, reader.view

        events = PageEvents(everything)
        async with serve_page(Site(events), self.place) as address:
            await reader.read()
            reading = asyncio.create_task(reader.keep_reading(events, every=SECONDS_BETWEEN))
            try:
                yield address
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
