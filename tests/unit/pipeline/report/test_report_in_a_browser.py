"""The page in a real browser: it fits a phone, loads nothing and causes no complaint."""

from __future__ import annotations

import json
import re
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.browsers import browser_or_skip
from tests.unit.pipeline.report.sample_figures import EMPTY, FIGURES
from tocsin.pipeline.report.figures import Figures
from tocsin.pipeline.report.sections.page import report_page

PHONE = 390

# In a frame, since a browser's own window cannot be so narrow. Answers are left in the title, for --dump-dom.
MEASURE = """<!doctype html><title></title><body style="margin:0">
<iframe id="page" width="WIDTH" height="900" style="border:0" srcdoc="PAGE"></iframe><script>
const frame = document.getElementById("page");
frame.addEventListener("load", () => {
  const page = frame.contentDocument, root = page.documentElement, inner = frame.contentWindow;
  const drawings = [...page.querySelectorAll("svg")].filter(each => each.getBoundingClientRect().width > 0);
  const outside = [...page.querySelectorAll("body *")].filter(each => {
    const box = each.getBoundingClientRect();
    return box.width && box.right > root.clientWidth + 1 && !each.closest(".scroll") && !each.closest("svg")
      && !each.closest(".skip");
  }).map(each => each.tagName + "." + each.className);
  document.title = JSON.stringify({
    width: root.clientWidth, scrollWidth: root.scrollWidth, outside, drawings: drawings.length,
    narrow: drawings.filter(each => each.classList.contains("narrow")).length,
    loaded: inner.performance.getEntriesByType("resource").map(each => each.name),
    focusable: page.querySelectorAll("a[href],summary,[tabindex='0']").length,
  });
});
</script>"""


@pytest.fixture(scope="module")
def chromium() -> str:
    return browser_or_skip()


def measured(chromium: str, tmp_path: Path, page: str, width: int) -> dict[str, Any]:
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(MEASURE.replace("WIDTH", str(width)).replace("PAGE", escape(page)), encoding="utf-8")
    ran = subprocess.run(
        [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--enable-logging=stderr",
            "--virtual-time-budget=5000",
            "--dump-dom",
            wrapper.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    complaints = [line for line in ran.stderr.splitlines() if "CONSOLE" in line]
    title = re.search("<title>(.*?)</title>", ran.stdout)
    assert title, ran.stdout[:500]
    found: dict[str, Any] = json.loads(unescape(title[1]))
    return {**found, "complaints": complaints}


@pytest.mark.parametrize("figures", [pytest.param(FIGURES, id="full"), pytest.param(EMPTY, id="empty")])
def test_page_fits_a_phone_and_loads_nothing(chromium: str, tmp_path: Path, figures: Figures) -> None:
    found = measured(chromium, tmp_path, report_page(figures), PHONE)
    assert found["width"] <= PHONE
    assert found["scrollWidth"] <= found["width"]
    assert found["outside"] == []
    assert found["drawings"] == found["narrow"] > 0
    assert found["loaded"] == []
    assert found["complaints"] == []
    assert found["focusable"] > 10


def test_page_on_a_screen_shows_the_wide_drawings(chromium: str, tmp_path: Path) -> None:
    found = measured(chromium, tmp_path, report_page(FIGURES), 1100)
    assert found["narrow"] == 0
    assert found["drawings"] > 5
    assert found["scrollWidth"] <= found["width"]


def test_the_measuring_can_find_what_it_looks_for(chromium: str, tmp_path: Path) -> None:
    bad = '<img src="x.png"><main style="width:900px">wide</main><script>console.error("no")</script>'
    page = report_page(FIGURES).replace("<main", f"{bad}<main").replace("default-src 'none'", "default-src *")
    found = measured(chromium, tmp_path, page, PHONE)
    assert found["scrollWidth"] > found["width"]
    assert found["outside"]
    assert found["loaded"] or found["complaints"]
