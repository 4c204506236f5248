"""Pages that are made from the code are those that the code makes, and every word in them has a meaning."""

from __future__ import annotations

import pytest

from tools import reference_pages


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_the_page_is_current(name: str) -> None:
    page = (reference_pages.FOLDER / name).read_text()
    assert page == reference_pages.PAGES[name](), "run: python -m tools.reference_pages"


@pytest.mark.parametrize("name", ["metrics.md", "events.md", "errors.md", "commands.md"])
def test_nothing_is_left_unexplained(name: str) -> None:
    page = (reference_pages.FOLDER / name).read_text()
    unexplained = [line for line in page.splitlines() if line.startswith("| `") and line.endswith("|  |")]
    assert [line for line in unexplained if line.count("|") == 3] == []
