"""The view `Operate`, and pages that are only that."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.browser.tabs import Tab
from tocsin.web.metric_readings import MetricReadings
from tocsin.web.operate_view import Readings, operate_view
from tocsin.web.page_events import PageEvents
from tocsin.web.page_server import PageServer, Site

ENDS = ("accepted", "superseded", "failed", "shed", "pending", "difference")
TOKEN = "a-token-of-these-tests"


def value(tab: Tab, key: str) -> int:
    return int(tab.text(f"[data-figure={key}] .value").replace(",", ""))


def test_the_parts_add_up_live_and_in_the_tables(tab: Tab, address: str) -> None:
    tab.open(f"{address}#operate")
    tab.until("document.querySelector('[data-figure=tables-received] .value')")
    tab.until("Number(document.querySelector('[data-figure=funnel-received] .value').innerText) > 0")
    for kind in ("funnel", "tables"):
        assert value(tab, f"{kind}-received") == sum(value(tab, f"{kind}-{end}") for end in ENDS)
    assert [value(tab, f"tables-{end}") for end in ENDS] == [80, 12, 5, 1, 2, 0]
    assert "100 received" in tab.text("[data-section=tables] .equation")
    assert "smp1.example" in tab.text("[data-section=routers]")
    assert "250 ms" in tab.text("[data-section=latency]")


def test_every_number_says_what_it_means_and_what_to_do(tab: Tab, address: str) -> None:
    tab.open(f"{address}#operate")
    tab.until("document.querySelector('[data-figure=drift_queues]')")
    for texts in (".figure .meaning", ".figure details p"):
        lengths = tab.evaluate(f"[...document.querySelectorAll('{texts}')].map((e) => e.textContent.length)")
        assert len(lengths) == tab.evaluate("document.querySelectorAll('.figure').length")
        assert min(lengths) > 10
    drift = "document.querySelector('[data-figure=drift_queues]')"
    assert tab.evaluate(f"{drift}.dataset.level") == "look"
    assert tab.evaluate(f"{drift}.querySelector('details').open"), (
        "what to do is shown without being asked for"
    )


def test_opened_details_stay_open_when_numbers_change(tab: Tab, address: str) -> None:
    tab.open(f"{address}#operate")
    tab.until("document.querySelector('[data-figure=tokens] details')")
    tab.evaluate("document.querySelector('[data-figure=tokens] summary').click()")
    before = tab.text("#as-of")
    tab.until(f"document.getElementById('as-of').innerText !== {before!r}")
    assert tab.evaluate("document.querySelector('[data-figure=tokens] details').open")


@contextmanager
def operate_page(view: dict[str, Any]) -> Iterator[str]:
    """A page with a token and without phones, served by a thread of this process."""
    ready, port, stop = threading.Event(), [0], asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        events = PageEvents(lambda: [("page", {"live": False}), ("operate", view)])
        async with PageServer(Site(events), host="127.0.0.1", port=0, token=TOKEN) as server:
            port[0] = server.port
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait(10)
    try:
        yield f"http://127.0.0.1:{port[0]}/"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def test_a_router_has_a_page_without_phones_behind_a_token(tab: Tab) -> None:
    key = "BAIX5hfwtkQ5KCePlpmeaaI6TywVK99tbN9m5bgCgtTtGUp968uXcS0t2jyoWqh2Wlb0X8dYWZZS8ol8ZTBuV5Q"
    metrics = MetricReadings.parse(
        "simplex_ntf_accounting_received 7\nsimplex_ntf_accounting_accepted 6\n"
        f'simplex_ntf_web_push_key{{key="{key}"}} 1\n'
    )
    with operate_page(operate_view(Readings(metrics, missing={"tables": "none"}), 0.0)) as address:
        tab.open(address)
        assert "it carries the token" in tab.text("body")
        tab.open(f"{address}?token={TOKEN}")
        tab.until("document.querySelector('[data-figure=funnel-difference]')")
        assert tab.evaluate("location.href") == address
        assert TOKEN not in tab.evaluate("document.cookie")
        assert tab.evaluate("document.getElementById('to-live').hidden")
        assert (
            tab.evaluate("document.querySelector('[data-figure=funnel-difference]').dataset.level") == "bad"
        )
        assert "tables: none" in tab.text("#missing")
        assert key in tab.text("[data-section=states]")
        table = "document.querySelector('[data-section=states] .scroll')"
        assert tab.evaluate(f"{table}.scrollWidth <= {table}.clientWidth"), "the whole key is seen"
    tab.until("document.getElementById('link').innerText.includes('connection lost')")
