"""The committed pages and pictures of state machines are what the tables say, and nothing in a picture is cut off."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tocsin.agent.subscriptions.answers import FATES, FOLLOWS
from tools.diagrams import agent_states
from tools.diagrams.files import DOCS, IMAGES, made_files
from tools.diagrams.ladders import LETTER

MADE = {str(path.relative_to(DOCS)): text for path, text in made_files().items()}
PICTURES = sorted(name for name in MADE if name.endswith(".svg"))


@pytest.mark.parametrize("name", sorted(MADE))
def test_committed_files_are_current(name: str) -> None:
    assert (DOCS / name).read_text("utf-8") == MADE[name], "run `python -m tools.diagrams`"


def test_no_picture_is_left_over() -> None:
    assert sorted(str(path.relative_to(DOCS)) for path in IMAGES.iterdir()) == PICTURES


def test_every_answer_of_every_action_is_on_the_agents_page() -> None:
    commands = ("| NSKEY", "| NKEY", "| NPKT", "| NDEL", "| SNEW", "| SCHK")
    rows = [line for line in agent_states.page().splitlines() if line.startswith(commands)]
    assert len(rows) == sum(map(len, FOLLOWS.values())) + sum(map(len, FATES.values()))


@pytest.mark.parametrize("name", PICTURES)
def test_texts_are_inside_and_apart(name: str) -> None:
    picture = ElementTree.fromstring(MADE[name])  # noqa: S314 - our own
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    boxes = []
    for text in picture.iter("{http://www.w3.org/2000/svg}text"):
        wide = len(text.text or "") * LETTER
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        left = x - wide / 2 if text.attrib.get("text-anchor") == "middle" else x
        assert left >= 0
        assert left + wide <= width
        assert 10 <= y <= height - 4
        boxes.append((left, left + wide, y))
    for number, (left, right, y) in enumerate(boxes):
        for other_left, other_right, other_y in boxes[number + 1 :]:
            assert abs(y - other_y) >= 14 or right <= other_left or other_right <= left


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_load_nothing(name: str) -> None:
    assert re.findall(r"(?:href|src|@import|url\()\W*(https?:)?//", MADE[name]) == []
