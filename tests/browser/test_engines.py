"""Both engines on the page: Spark joins, pushes, is given a phone, is killed, and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import serving_page
from tests.browser.tabs import Tab
from tests.browser.test_live import row, send, until_state

pytestmark = pytest.mark.timeout(360)
SPARK_SECONDS = 120.0
"""On a busy machine Java takes its time."""
TRIES = 40
"""A push that the job answers late goes out from the router, so one message may not be enough."""
PHASE = "document.querySelector('[data-phase]')?.dataset.phase"


@pytest.fixture(scope="module")
def spark_address(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving_page(tmp_path_factory.mktemp("engines") / "up", "--engine", "both") as found:
        yield found


@pytest.fixture
def page(tab: Tab, spark_address: str) -> Tab:
    """The phones are silent."""
    tab.open(f"{spark_address}#live")
    tab.until("document.querySelectorAll('#phones select[data-engine]').length === 3")
    if tab.evaluate("document.getElementById('chatter').checked"):
        tab.click("#chatter")
    return tab


def pushed_by(page: Tab, sender: str, receiver: str) -> str:
    """Sends a message, and returns who pushed it."""
    text = send(page, sender=sender, receiver=receiver)
    until_state(page, text, "fetched after", patience=60)
    page.until(f"{row(text)}.querySelector('[data-by]')")
    return str(page.evaluate(f"{row(text)}.querySelector('[data-by]').dataset.by"))


def until_pushed_by(page: Tab, engine: str, sender: str, receiver: str) -> None:
    seen = [pushed_by(page, sender, receiver)]
    while seen[-1] != engine:
        assert len(seen) < TRIES, seen
        seen.append(pushed_by(page, sender, receiver))


def choose(page: Tab, phone: str, engine: str) -> None:
    """As a person does, and waits until the router knows."""
    field = f"document.querySelector('[data-phone={phone}] select[data-engine]')"
    page.evaluate(f"{field}.value = '{engine}'")
    page.evaluate(f"{field}.dispatchEvent(new Event('change'))")
    page.until(f"{field}.value === '{engine}'")
    page.until(f"!document.querySelector('[data-phone={phone}] .waits').innerText")


def test_phones_write_before_spark_is_ready_and_then_spark_pushes_to_half_of_them(
    page: Tab, screenshots: Path
) -> None:
    assert pushed_by(page, "Bob", "Alice") == "inline"
    page.until(f"{PHASE} === 'pushing'", SPARK_SECONDS)
    until_pushed_by(page, "spark", "Alice", "Bob")
    assert pushed_by(page, "Bob", "Alice") == "inline"
    page.until("Number(document.querySelector('[data-fact=batches]').innerText) > 0")
    page.until("document.querySelector('[data-fact=taken_until]')")
    assert page.evaluate("document.getElementById('spark-page').href").startswith("http://127.0.0.1:")
    page.until("Number(document.querySelector('[data-table=events] b').innerText) > 0", SPARK_SECONDS)
    page.until("document.querySelector('#detail .title')")
    page.screenshot(screenshots / "engines.png")
    assert page.complaints() == []


def test_a_phone_is_given_to_the_other_engine_and_back(page: Tab) -> None:
    page.until(f"{PHASE} === 'pushing'", SPARK_SECONDS)
    choose(page, "Alice", "spark")
    until_pushed_by(page, "spark", "Bob", "Alice")
    page.until("document.querySelector('#detail').innerText.includes('from Spark')")
    choose(page, "Alice", "inline")
    until_pushed_by(page, "inline", "Bob", "Alice")
    assert pushed_by(page, "Carol", "Alice") == "inline"


def test_the_router_pushes_while_spark_is_gone_and_spark_comes_back(page: Tab, screenshots: Path) -> None:
    page.until(f"{PHASE} === 'pushing'", SPARK_SECONDS)
    choose(page, "Carol", "spark")
    page.click("[data-kill-job]")
    page.until(f"['gone', 'starting'].includes({PHASE})")
    page.screenshot(screenshots / "spark-gone.png")
    until_pushed_by(page, "inline", "Alice", "Carol")
    page.until(f"{PHASE} === 'pushing'", SPARK_SECONDS)
    assert "restarted 1×" in page.text("[data-phase]")
    until_pushed_by(page, "spark", "Alice", "Carol")
