"""Commands that a page shows exist, with the options that it gives them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.test_docs_links import PAGES, ROOT
from tocsin.cli.main import build_parser

BLOCK = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"(?:^|\s)(?:tocsin|job\.py)\s(.+)")
FOR_THE_SHELL = re.compile(r"(?:[\d&]?[<>]|\||&$|&&).*")
LEFT_OUT = "…"


def commands_on(page: Path) -> Iterator[str]:
    for block in BLOCK.findall(page.read_text("utf-8")):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            found = COMMAND.search(line)
            if found and (line.startswith("tocsin ") or "job.py pipeline" in line):
                yield FOR_THE_SHELL.sub("", found[1])


SHOWN = [(page, command) for page in PAGES for command in commands_on(page)]


def test_pages_show_commands() -> None:
    assert len(SHOWN) > 50
    assert sum(page.name == "spark-cluster.md" for page, _ in SHOWN) >= 4


@pytest.mark.parametrize(
    ("page", "command"), SHOWN, ids=[f"{page.relative_to(ROOT)}: {command}" for page, command in SHOWN]
)
def test_a_command_that_a_page_shows_exists(page: Path, command: str) -> None:
    words = [word for word in shlex.split(command, comments=True) if word != LEFT_OUT]
    build_parser().parse_args(words)
