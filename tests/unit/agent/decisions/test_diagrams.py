"""The committed page of diagrams is what the tables say."""

from __future__ import annotations

from tocsin.agent.decisions.packet_fates import FATES
from tocsin.agent.decisions.worker_answers import FOLLOWS
from tools.agent_diagrams import PAGE, page


def test_committed_diagrams_are_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `python -m tools.agent_diagrams`"


def test_every_answer_of_every_action_is_on_the_page() -> None:
    commands = ("| NSKEY", "| NKEY", "| NPKT", "| NDEL", "| SNEW", "| SCHK")
    rows = [line for line in page().splitlines() if line.startswith(commands)]
    assert len(rows) == sum(map(len, FOLLOWS.values())) + sum(map(len, FATES.values()))
