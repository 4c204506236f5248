"""Draws the agent's decision tables: `python -m tools.agent_diagrams` writes docs/agent-states.md.

The tables in `tocsin.agent.decisions` are the source; a test compares the committed page with what this makes of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tocsin.agent.decisions.registration import AFTER_ERRORS, STEPS, Step
from tocsin.agent.decisions.supervision import CREATE_STEPS, CreateStep
from tocsin.agent.decisions.worker_answers import FOLLOWS, Follow
from tocsin.stores.agent_records import NextAction

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "agent-states.md"

_WIRE: Final = {
    NextAction.CREATE_KEYS: "NKEY",
    NextAction.DELETE_KEYS: "NDEL",
    NextAction.SUBSCRIBE: "SNEW",
    NextAction.CHECK: "SCHK",
}
_TARGETS: Final = {
    Follow.SUBSCRIBE: "SNEW",
    Follow.FIRST_CHECK: "SCHK",
    Follow.NEXT_CHECK: "SCHK",
    Follow.DROP: "[*]",
    Follow.RECREATE: "NKEY",
    Follow.GIVE_UP: "given_up",
    Follow.GIVE_UP_AND_CHECK_TOKEN: "given_up",
}


def page() -> str:
    return "\n".join(
        [
            "# What the agent does next",
            "",
            "Made by `python -m tools.agent_diagrams` from the tables in `src/tocsin/agent/decisions/`; "
            "a test keeps it current.",
            "",
            "## Registering a token",
            "",
            "The step of a call of `register`, by what is saved. Without a saved token it is "
            f"*{Step.CREATE.value}*.",
            "",
            *table(
                ("Token id", "Saved action", "Device token", "Step"),
                (
                    (
                        "known" if known else "none",
                        action.value,
                        "same" if same else "another",
                        step.value,
                    )
                    for (known, action, same), step in STEPS.items()
                ),
            ),
            "",
            *mermaid("flowchart LR", registration_lines()),
            "",
            "## The supervisor's `create`",
            "",
            f"Without a row: *{CreateStep.NEW.value}*. With one, by its notifier credentials next to the queue's, "
            "whose token it is, and its next action:",
            "",
            *table(
                ("Credentials", "Row is", "Next action", "Decision"),
                (
                    (
                        credentials.value,
                        token.value,
                        "none" if action is None else _WIRE[action],
                        step.value,
                    )
                    for (credentials, token, action), step in CREATE_STEPS.items()
                ),
            ),
            "",
            "## A connection's row in the workers' hands",
            "",
            "A temporary error leaves the row as it is; it is tried again after a delay that grows.",
            "",
            *mermaid("stateDiagram-v2", worker_lines()),
            "",
            *table(
                ("Action", "Answer", "What follows"),
                (
                    (_WIRE[action], answer.value, follow.value)
                    for action, follows in FOLLOWS.items()
                    for answer, follow in follows.items()
                ),
            ),
            "",
        ]
    )


def registration_lines() -> Iterator[str]:
    """Which answers to which step make the agent start over."""
    for step in Step:
        yield f'{step.name}["{step.value}"]'
    for step, errors in AFTER_ERRORS.items():
        for after in dict.fromkeys(errors.values()):
            kinds = ", ".join(kind.value for kind, each in errors.items() if each is after)
            yield f'{step.name} -- "{kinds}" --> {after.name}["{after.value}"]'
    yield "RECREATE --> CREATE"


def worker_lines() -> Iterator[str]:
    yield "[*] --> NKEY: create"
    yield "[*] --> SNEW: queue created with a notifier"
    for action, follows in FOLLOWS.items():
        targets: dict[str, list[str]] = {}
        for answer, follow in follows.items():
            if follow is not Follow.RETRY:
                targets.setdefault(_TARGETS[follow], []).append(answer.value.replace(":", ""))
        for target, answers in targets.items():
            yield f"{_WIRE[action]} --> {target}: {' or '.join(answers)}"
    yield "given_up --> NKEY: create"
    for state in ("NKEY", "SNEW", "SCHK", "given_up"):
        yield f"{state} --> NDEL: delete"
    yield "NDEL --> NKEY: create"


def mermaid(kind: str, lines: Iterable[str]) -> list[str]:
    return ["```mermaid", kind, *(f"    {line}" for line in lines), "```"]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
