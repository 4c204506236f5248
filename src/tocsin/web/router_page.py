"""The page of an NTF router: the view `Operate`, from its own metrics and the pipeline's tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tocsin.operate.router_process import RouterOperator
from tocsin.web.operate_reader import OPERATE, OperateReader
from tocsin.web.page_address import PagePlace, serve_page
from tocsin.web.page_events import PageEvents
from tocsin.web.page_server import Site

SECONDS_BETWEEN: Final = 5.0
NO_LAKE: Final = "none were named: tocsin ntf start --web … --web-lake FOLDER"


@dataclass(frozen=True, slots=True)
class NtfPage:
    place: PagePlace
    lake: Path | None

    @asynccontextmanager
    async def served(self, operator: RouterOperator) -> AsyncIterator[str]:
        """The address to open. Raises ConnectFailed."""
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
