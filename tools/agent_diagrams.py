"""Draws the agent's decision tables: `python -m tools.agent_diagrams` writes docs/agent-states.md.

The tables in `tocsin.agent.decisions` are the source; a test compares the committed page with what this makes of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tocsin.agent.decisions.packet_fates import FATES
from tocsin.agent.decisions.priorities import PriorityStep, priority_step
from tocsin.agent.decisions.registration import AFTER_ERRORS, STEPS, Step
from tocsin.agent.decisions.supervision import CREATE_STEPS, CreateStep
from tocsin.agent.decisions.worker_answers import FOLLOWS, Follow
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.stores.agent_records import NextAction

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "agent-states.md"

_WIRE: Final = {
    NextAction.CREATE_KEYS: "NSKEY or NKEY",
    NextAction.CREATE_OLD_KEYS: "NKEY",
    NextAction.ASK_FATE: "NPKT",
    NextAction.SEND_PACKET: "NPKT with a packet",
    NextAction.DELETE_KEYS: "NDEL",
    NextAction.SUBSCRIBE: "SNEW",
    NextAction.CHECK: "SCHK",
}
_STATES: Final = {
    **_WIRE,
    NextAction.CREATE_KEYS: "create",
    NextAction.SEND_PACKET: "NPKT_packet",
}
_PACKET_OF: Final = {**_WIRE, NextAction.CREATE_KEYS: "NSKEY"}
_TARGETS: Final = {
    Follow.READY: "NPKT",
    Follow.ASK_SOON: "NPKT",
    Follow.SEAL_AGAIN: "NPKT_packet",
    Follow.OLD_WAY: "NKEY",
    Follow.SUBSCRIBE: "SNEW",
    Follow.FIRST_CHECK: "SCHK",
    Follow.NEXT_CHECK: "SCHK",
    Follow.DROP: "[*]",
    Follow.RECREATE: "create",
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
            "`NSKEY` is sent in a session of direct notifications, with a token whose NTF router has given a key; "
            "`NKEY` in others. `NPKT` without a packet is also how such a row is checked: if its SMP router does not "
            "know direct notifications any more, it stays, and is asked about again after the interval.",
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
            "## Fates of packets",
            "",
            "What the SMP router answers to `NSKEY` and `NPKT` (docs/direct-notifications.md).",
            "",
            *table(
                ("Action", "Fate", "What follows"),
                (
                    (
                        _PACKET_OF[action],
                        f"{fate.value.decode()}: {fate.name.lower().replace('_', ' ')}",
                        follow.value,
                    )
                    for action, follows in FATES.items()
                    for fate, follow in follows.items()
                ),
            ),
            "",
            "## Priorities",
            "",
            "By what the SMP router has for the notifier (0: nothing notifies, 1: all), what the app wants, and "
            "whether the session is one of direct notifications:",
            "",
            *table(
                ("Router has", "Wanted", "Session", "Step"),
                (
                    (str(int(present)), str(int(wanted)), "direct" if direct else "not direct", step.value)
                    for direct in (True, False)
                    for present in MinimumPriority
                    for wanted in MinimumPriority
                    if (step := priority_step(present, wanted, direct_session=direct))
                    is not PriorityStep.NOTHING
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
    yield 'state "NSKEY or NKEY" as create'
    yield 'state "NPKT with a packet" as NPKT_packet'
    yield "[*] --> create"
    yield "[*] --> SNEW: queue created with a notifier"
    yield "[*] --> NPKT: queue created with a packet"
    for action, follows in FOLLOWS.items():
        targets: dict[str, list[str]] = {}
        for answer, follow in follows.items():
            if follow is not Follow.RETRY:
                targets.setdefault(_TARGETS[follow], []).append(answer.value.replace(":", ""))
        for fate, follow in FATES.get(action, {}).items():
            targets.setdefault(_TARGETS[follow], []).append(fate.value.decode())
        for target, answers in targets.items():
            yield f"{_STATES[action]} --> {target}: {' or '.join(answers)}"
    yield "given_up --> create"
    for state in ("create", "NKEY", "NPKT", "NPKT_packet", "SNEW", "SCHK", "given_up"):
        yield f"{state} --> NDEL: delete"
    yield "NDEL --> create"


def mermaid(kind: str, lines: Iterable[str]) -> list[str]:
    return ["```mermaid", kind, *(f"    {line}" for line in lines), "```"]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
