"""The agent's decisions: docs/agent-states.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tocsin.agent.store.records import NextAction
from tocsin.agent.subscriptions.answers import FATES, FOLLOWS, Follow
from tocsin.agent.subscriptions.priorities import PriorityStep, priority_step
from tocsin.agent.subscriptions.supervision import CREATE_STEPS, CreateStep
from tocsin.agent.token.registration import AFTER_ERRORS, STEPS, AfterError, TokenStep
from tocsin.protocol.direct.priorities import MinimumPriority
from tools.diagrams.ladders import Column, Row, ladder
from tools.diagrams.markdown import made_from, picture, table

_REGISTRATION: Final = ("agent-registration", "What follows an error of each step of a registration")
_WORKERS: Final = ("agent-workers", "What leads a connection's row from one action to the next")
_NO_ROW: Final = "no row"
_GIVEN_UP: Final = "given up"

_WIRE: Final = {
    NextAction.CREATE_KEYS: "NSKEY or NKEY",
    NextAction.CREATE_OLD_KEYS: "NKEY",
    NextAction.ASK_FATE: "NPKT",
    NextAction.SEND_PACKET: "NPKT with a packet",
    NextAction.DELETE_KEYS: "NDEL",
    NextAction.SUBSCRIBE: "SNEW",
    NextAction.CHECK: "SCHK",
}
_PACKET_OF: Final = {**_WIRE, NextAction.CREATE_KEYS: "NSKEY"}
_TARGETS: Final = {
    Follow.READY: _WIRE[NextAction.ASK_FATE],
    Follow.ASK_SOON: _WIRE[NextAction.ASK_FATE],
    Follow.SEAL_AGAIN: _WIRE[NextAction.SEND_PACKET],
    Follow.OLD_WAY: _WIRE[NextAction.CREATE_OLD_KEYS],
    Follow.SUBSCRIBE: _WIRE[NextAction.SUBSCRIBE],
    Follow.FIRST_CHECK: _WIRE[NextAction.CHECK],
    Follow.NEXT_CHECK: _WIRE[NextAction.CHECK],
    Follow.DROP: _NO_ROW,
    Follow.RECREATE: _WIRE[NextAction.CREATE_KEYS],
    Follow.GIVE_UP: _GIVEN_UP,
    Follow.GIVE_UP_AND_CHECK_TOKEN: _GIVEN_UP,
}


def page() -> str:
    return "\n".join(
        [
            "# What the agent does next",
            "",
            made_from("src/tocsin/agent/"),
            "",
            "## Registering a token",
            "",
            "The next step of `register` depends on what is saved. Without a saved token it is "
            f"*{TokenStep.CREATE.value}*.",
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
            picture(*_REGISTRATION),
            "",
            "## The supervisor's `create`",
            "",
            f"Without a row: *{CreateStep.NEW.value}*. With a row, the decision depends on whether it has the queue's "
            "notifier credentials, on its token, and on its next action:",
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
            "## What the workers do with a connection's row",
            "",
            "After a temporary error the row stays unchanged, and the worker tries again after a growing delay. In a "
            "direct session, with a token whose NTF router has given a key, it sends `NSKEY`; otherwise `NKEY`. `NPKT` "
            "without a packet also checks such a row. If its SMP router no longer supports direct notifications, the "
            "row stays, and the worker asks again after the interval.",
            "",
            picture(*_WORKERS),
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
            "The SMP router answers `NSKEY` and `NPKT` with a fate (docs/direct-notifications.md).",
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
            "The step depends on the minimum priority that the SMP router has for the notifier (0: nothing notifies, "
            "1: all), on the one that the app wants, and on whether the session is direct:",
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


def pictures() -> dict[str, str]:
    steps = [Column(step.value) for step in TokenStep]
    ends = [Column(after.value, is_end=True) for after in dict.fromkeys(_every_after())]
    columns = [
        Column(_NO_ROW, is_end=True),
        *(Column(_WIRE[action]) for action in NextAction),
        Column(_GIVEN_UP, is_end=True),
    ]
    return {
        _REGISTRATION[0]: ladder("Registration", _REGISTRATION[1], steps + ends, list(registration_rows())),
        _WORKERS[0]: ladder("A row of the agent's workers", _WORKERS[1], columns, list(worker_rows())),
    }


def registration_rows() -> Iterator[Row]:
    """Which answers to which step make the agent start over."""
    for step, errors in AFTER_ERRORS.items():
        for after in dict.fromkeys(errors.values()):
            kinds = ", ".join(kind.value for kind, each in errors.items() if each is after)
            yield Row(kinds, (step.value,), after.value)


def worker_rows() -> Iterator[Row]:
    create = _WIRE[NextAction.CREATE_KEYS]
    yield Row("notifications wanted", (_NO_ROW,), create)
    yield Row("queue created with a notifier", (_NO_ROW,), _WIRE[NextAction.SUBSCRIBE])
    yield Row("queue created with a packet", (_NO_ROW,), _WIRE[NextAction.ASK_FATE])
    for action, follows in FOLLOWS.items():
        targets: dict[str, list[str]] = {}
        for answer, follow in follows.items():
            if follow is not Follow.RETRY:
                targets.setdefault(_TARGETS[follow], []).append(answer.value)
        for fate, follow in FATES.get(action, {}).items():
            targets.setdefault(_TARGETS[follow], []).append(fate.value.decode())
        for target, answers in targets.items():
            yield Row(" or ".join(answers), (_WIRE[action],), target)
    others = tuple(_WIRE[action] for action in NextAction if action is not NextAction.DELETE_KEYS)
    yield Row("wanted again", (_GIVEN_UP, _WIRE[NextAction.DELETE_KEYS]), create)
    yield Row("no longer wanted", (*others, _GIVEN_UP), _WIRE[NextAction.DELETE_KEYS])


def _every_after() -> Iterator[AfterError]:
    for errors in AFTER_ERRORS.values():
        yield from errors.values()
