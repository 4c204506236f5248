"""The metrics of the last check over HTTP, for Prometheus: the service itself works without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from tocsin.operate.operator_pages import METRICS_PATH, OperatorPages, Page, metrics_page


@contextmanager
def metrics_port(host: str, port: int, file: Path) -> Iterator[int]:
    """Serves a metrics file on a thread of its own while the body runs, and yields the port.

    With `port` 0 the system chooses one. Raises ConnectFailed if the address cannot be listened on.
    """
    opened: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    thread = threading.Thread(target=_run, args=(host, port, file, opened), name="metrics", daemon=True)
    thread.start()
    chosen, loop, ended = opened.result()
    try:
        yield chosen
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:  # nothing was checked yet
        return ""


def _run(
    host: str,
    port: int,
    file: Path,
    opened: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]],
) -> None:
    async def metrics() -> Page:
        return metrics_page(await asyncio.to_thread(_text, file))

    async def serve() -> None:
        ended = asyncio.Event()
        async with OperatorPages({METRICS_PATH: metrics}, host=host, port=port) as pages:
            opened.set_result((pages.port, asyncio.get_running_loop(), ended))
            await ended.wait()

    try:
        asyncio.run(serve())
    except Exception as error:
        if opened.done():
            raise
        opened.set_exception(error)
