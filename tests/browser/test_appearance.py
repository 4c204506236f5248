"""Both views in light and dark, on a screen and on a phone: they fit, can be read, and ask nobody else."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.browser.tabs import Tab

# Text whose contrast with what is behind it is less than WCAG 2.2 asks for (1.4.3: 4.5, large text 3).
FAINT = """(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const [R, G, B] = [r, g, b].map((c) => ((c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * R + 0.7152 * G + 0.0722 * B;
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = parse(getComputedStyle(each).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("main *, header *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.disabled || element.closest("svg")) continue;
    const style = getComputedStyle(element);
    const [one, other] = [light(parse(style.color)), light(behind(element))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 600);
    if (ratio < (large ? 3 : 4.5)) found.push(`${element.textContent.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return found;
})()"""


@pytest.mark.parametrize("view", ["live", "operate"])
@pytest.mark.parametrize("width", [1280, 390], ids=["screen", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_view_fits_and_can_be_read(
    tab: Tab, address: str, screenshots: Path, view: str, width: int, dark: bool
) -> None:
    tab.emulate(width, 900, dark=dark)
    tab.open(f"{address}#{view}")
    tab.until("document.querySelectorAll('.figure').length > 20")
    tab.until("document.querySelectorAll('#messages li').length > 0")
    tab.until("document.querySelectorAll('.timeline li').length > 0")
    assert tab.text(f"#{view} h1").lower() == view
    assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    assert tab.evaluate(FAINT) == []
    background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) < 384) is dark
    tab.screenshot(
        screenshots / f"{view}-{'phone' if width == 390 else 'screen'}-{'dark' if dark else 'light'}.png"
    )
    assert tab.complaints() == []
    assert tab.hosts() == {urlsplit(address).netloc}


def test_nothing_moves_with_reduced_motion(tab: Tab, address: str) -> None:
    tab.open(address)
    moved = "getComputedStyle(document.querySelector('.stations li.pulse')).animationName"
    tab.until("document.querySelector('.stations li.pulse')")
    assert tab.evaluate(moved) == "pulse"
    tab.emulate(still=True)
    assert tab.evaluate(moved) == "none"


def test_every_control_has_an_accessible_name(tab: Tab, address: str) -> None:
    tab.open(address)
    tab.until("document.querySelectorAll('#phones select').length > 0")
    tab.until("document.querySelectorAll('.timeline li').length > 0")
    nodes = tab.accessibility_nodes()
    roles = {"button", "checkbox", "combobox", "textbox", "link", "table", "region", "DisclosureTriangle"}
    used = [node for node in nodes if node.get("role", {}).get("value") in roles]
    assert len(used) > 15
    assert [
        node for node in used if not node.get("name", {}).get("value") and node["role"]["value"] != "table"
    ] == []
