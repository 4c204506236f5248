"""No row is left to itself: whatever it waits for and whatever is answered, it has a next action or is at its goal.

Every next action of a row is combined with what became of its token, with what the user wants of the connection, with
the answer to its next request, and with a kill. Then the token becomes active again, routers answer, and time passes:
each row must reach its goal (issue 17, defect 15).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import pytest

from tests.doubles.fake_routers import Fault
from tests.unit.agent.test_direct_histories import DirectHistories
from tests.unit.agent.test_histories import DEVICES
from tocsin.agent.store.records import NextAction, NotificationMode
from tocsin.protocol.direct.priorities import MinimumPriority


def _nothing(_history: DirectHistories) -> None:
    pass


def _keys_turned(history: DirectHistories) -> None:
    history.keys_are_turned()


def _refusals_forgotten(history: DirectHistories) -> None:
    history.smp_router_forgets_refusals()


def _faulty(fault: Fault) -> Callable[[DirectHistories], None]:
    return lambda history: history.faults_to_come([fault])


TOKENS: dict[str, Callable[[DirectHistories], None]] = {
    "active": _nothing,
    "invalid": lambda history: history.ntf_router_finds_tokens_invalid(),
    "invalid and known": lambda history: (
        history.ntf_router_finds_tokens_invalid(),
        history.check_token(),
    )[0],
    "lost": lambda history: history.ntf_router_loses_its_database(),
    "deleted": lambda history: history.delete_token(),
    "periodic": lambda history: history.register(DEVICES[0], NotificationMode.PERIODIC),
}
ANSWERS: dict[str, Callable[[DirectHistories], None]] = {
    "as usual": _nothing,
    "keys turned": _keys_turned,
    "refusals forgotten": _refusals_forgotten,
    **{fault.value: _faulty(fault) for fault in Fault},
}


@dataclass(frozen=True)
class Case:
    token: str
    answer: str
    muted_first: bool
    """The user's wish comes before the token's fate."""
    killed: bool


CASES = [Case(*each) for each in product(TOKENS, ANSWERS, (False, True), (False, True))]
WANTED = (MinimumPriority.ALL, MinimumPriority.PRIORITY, MinimumPriority.OFF)


@pytest.mark.parametrize("wanted", WANTED, ids=lambda each: each.name)
@pytest.mark.parametrize("action", [None, *NextAction], ids=lambda each: getattr(each, "name", "GIVEN_UP"))
def test_every_row_reaches_its_goal(action: NextAction | None, wanted: MinimumPriority) -> None:
    """All combinations take minutes, so each action and wish gets some of them, the same ones each time."""
    for case in random.Random(f"{action} {wanted}").sample(CASES, 10):
        _reaches_its_goal(action, wanted, case)


@pytest.mark.parametrize(
    ("action", "case"),
    [
        (NextAction.CREATE_OLD_KEYS, Case("invalid", Fault.LOST.value, muted_first=True, killed=True)),
        (NextAction.SUBSCRIBE, Case("active", "as usual", muted_first=False, killed=False)),
    ],
)
def test_the_row_of_a_muted_connection_goes_on_when_the_token_is_active_again(
    action: NextAction, case: Case
) -> None:
    """Found by all combinations: its worker waited for the token, and nobody woke it for a muted connection."""
    _reaches_its_goal(action, MinimumPriority.OFF, case)


def _reaches_its_goal(action: NextAction | None, wanted: MinimumPriority, case: Case) -> None:
    history = DirectHistories()
    name = ""
    try:
        history.start()
        history.do(history._rest())
        name = list(history.wanted)[1]
        if case.muted_first:
            _wish(history, name, wanted)
        [row] = history.do(history.store.subscriptions([name]))
        due_at = None if action is None else history.clock.exactly()
        history.do(history.store.put_subscriptions([replace(row, action=action, due_at=due_at)]))
        TOKENS[case.token](history)
        ANSWERS[case.answer](history)
        if not case.muted_first:
            _wish(history, name, wanted)
        history.go_on(4)
        if case.killed:
            history.agent_is_killed_and_starts_again()
        if case.token in ("deleted", "periodic"):
            history.comes_to_rest()  # the goal there: no row at all
        history.register(DEVICES[0], NotificationMode.INSTANT)
        history.comes_to_rest()
    except BaseException as error:
        error.add_note(f"{action}, {wanted}, {case}")
        raise
    finally:
        history.do(history.stack.aclose())
        history.loop.close()
        history.folder.cleanup()


def _wish(history: DirectHistories, name: str, wanted: MinimumPriority) -> None:
    history.do(history.agent.connections.set_notifications(name, wanted))
    history.wanted[name] = wanted is not MinimumPriority.OFF
