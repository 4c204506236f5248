"""When `tocsin up --once` finds the accounting of both engines wrong."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tocsin.lab.figures import EngineAccount, checked, last_account
from tocsin.ntf_router.settings.settings import DeliveryEngine
from tocsin.pipeline.report.figures import DeliveryAccount

BOTH, INLINE = DeliveryEngine.BOTH, DeliveryEngine.INLINE
ACCOUNT = DeliveryAccount(received=5, accepted=4, superseded=1)


def outcome(engines: EngineAccount | None) -> tuple[int, str]:
    text = io.StringIO()
    code = checked(Console(file=text, width=200), 5, 0, ACCOUNT, ACCOUNT, engines)
    return code, text.getvalue()


def test_both_engines_add_up() -> None:
    code, text = outcome(EngineAccount(BOTH, {"inline": 3, "spark": 1}, {"inline": 3, "spark": 1}))
    assert code == 0
    assert "the router 3, Spark 1" in text
    assert outcome(EngineAccount(INLINE, {"inline": 4}, {"inline": 4}))[0] == 0


def account(received: int, accepted: int) -> DeliveryAccount:
    return DeliveryAccount(received=received, accepted=accepted, pending=received - accepted)


async def test_the_last_account_has_what_came_after_every_message_had_arrived() -> None:
    readings = [account(5, 5), account(6, 5), account(6, 5), account(6, 6), account(6, 6), account(7, 7)]

    async def read() -> DeliveryAccount:
        return readings.pop(0)

    assert await last_account(read, patience=60, pause=0) == account(6, 6)
    assert readings == [account(7, 7)]


async def test_what_never_ends_stays_pending() -> None:
    async def read() -> DeliveryAccount:
        return account(6, 5)

    assert await last_account(read, patience=0, pause=0) == account(6, 5)


@pytest.mark.parametrize(
    ("chosen", "pushes", "ended", "says"),
    [
        (BOTH, {"inline": 4}, {"inline": 4}, "Spark pushed nothing"),
        (BOTH, {"spark": 4}, {"spark": 4}, "the router pushed nothing"),
        (BOTH, {"inline": 3, "spark": 1}, {"inline": 3}, "not all ends"),
        (BOTH, {"inline": 3, "spark": 1}, {"inline": 4}, "no event names it"),
    ],
)
def test_what_does_not_add_up_is_said(
    chosen: DeliveryEngine, pushes: dict[str, int], ended: dict[str, int], says: str
) -> None:
    code, text = outcome(EngineAccount(chosen, pushes, ended))
    assert code == 1
    assert says in text
