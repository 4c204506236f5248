"""Links between our own pages lead somewhere, anchors included, and every page can be reached from the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "fuzz" / "README.md"])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def links_of(page: Path) -> list[str]:
    text = CODE.sub("", page.read_text())
    found = [first or second for first, second in LINK.findall(text)]
    return [link for link in found if "://" not in link and not link.startswith("mailto:")]


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE
    )
    words = (
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower() for heading in headings
    )
    return {re.sub(r"[^\w\- ]", "", each).strip().replace(" ", "-") for each in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: there is no such file"
        if anchor and target.suffix == ".md":
            assert anchor in anchors_of(target), f"{link}: there is no such heading"


def test_every_page_can_be_reached() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for link in links_of(page):
            target = (page.parent / link.partition("#")[0]).resolve() if link.partition("#")[0] else page
            if target.is_dir():
                waiting += target.glob("*.md")
            elif target.suffix == ".md" and target.exists():
                waiting.append(target)
    assert (
        sorted(str(page.relative_to(ROOT)) for page in set(PAGES) - reached - {ROOT / "fuzz" / "README.md"})
        == []
    )
