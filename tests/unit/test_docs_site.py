"""The documentation site is built without a warning, every link in it leads somewhere, and it asks no other host."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
LOADED_RELATIONS = {"stylesheet", "icon", "preload", "modulepreload", "prefetch"}


class PageParts(HTMLParser):
    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADING and LOADING[tag] in given:
            self.loaded.append(given[LOADING[tag]])
        if tag == "link" and LOADED_RELATIONS & set(given.get("rel", "").split()):
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", str(folder)]
    built = subprocess.run(
        [*command, "-d", str(folder / ".doctrees")], cwd=ROOT, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, PageParts]:
    return {page: PageParts(page) for page in site.rglob("*.html")}


def test_every_page_of_the_folder_is_in_the_site(site: Path, pages: dict[Path, PageParts]) -> None:
    docs = ROOT / "docs"
    wanted = {page.relative_to(docs).with_suffix(".html") for page in docs.rglob("*.md")}
    assert wanted <= {page.relative_to(site) for page in pages}


def test_links_lead_somewhere(site: Path, pages: dict[Path, PageParts]) -> None:
    dead = []
    for page, parts in pages.items():
        for link in (*parts.links, *parts.loaded):
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (page.parent / unquote(url.path)).resolve() if url.path else page
            found = target.exists() and target.is_relative_to(site)
            if not found or (url.fragment and target in pages and url.fragment not in pages[target].anchors):
                dead.append(f"{page.relative_to(site)}: {link}")
    assert dead == []


def test_nothing_is_loaded_from_other_hosts(pages: dict[Path, PageParts]) -> None:
    assert [link for parts in pages.values() for link in parts.loaded if urlsplit(link).netloc] == []
