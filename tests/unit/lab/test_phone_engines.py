"""Phones are the router's until the job pushes, and a router that restarts is told again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tocsin.lab.phone_engines import PhoneEngines
from tocsin.lab.phones import Phone
from tocsin.ntf_router.settings.settings import DeliveryEngine
from tocsin.operate.control_port import LinePort

INLINE, SPARK, BOTH = DeliveryEngine.INLINE, DeliveryEngine.SPARK, DeliveryEngine.BOTH


@dataclass
class ToldRouter:
    """A control port that remembers orders."""

    orders: list[str] = field(default_factory=list)
    ended = False
    answer_with: str = "ok, spark"

    async def answer(self, line: str) -> str:
        line = line.strip()
        if line.startswith("engine"):
            self.orders.append(line)
            return self.answer_with
        return "Current role is CPRAdmin" if line.startswith("auth") else ""


@asynccontextmanager
async def listening(router: ToldRouter) -> AsyncIterator[int]:
    async with LinePort(lambda: router, greeting="hello\nhelp", port=0) as port:
        yield port.port


def phone(name: str) -> Phone:
    async def current() -> Any:
        return SimpleNamespace(token_id=name.encode())

    return cast(
        Phone, SimpleNamespace(name=name, agent=SimpleNamespace(tokens=SimpleNamespace(current=current)))
    )


PEOPLE = [phone(name) for name in ("Alice", "Bob", "Carol")]


@pytest.mark.parametrize(
    ("engine", "first"), [(INLINE, [INLINE] * 3), (SPARK, [SPARK] * 3), (BOTH, [INLINE, SPARK, INLINE])]
)
def test_both_engines_take_turns_at_first(engine: DeliveryEngine, first: list[DeliveryEngine]) -> None:
    assert list(PhoneEngines(PEOPLE, engine, 1, "").wanted.values()) == first


async def test_only_a_ready_job_gets_its_phones_and_only_changes_are_told() -> None:
    router = ToldRouter()
    async with listening(router) as port:
        engines = PhoneEngines(PEOPLE, BOTH, port, "secret")
        assert await engines.apply(ready=False)
        assert router.orders == []
        assert await engines.apply(ready=True)
        assert await engines.apply(ready=True)
        assert router.orders == ["engine Qm9i spark"]
        assert engines.engine_of("Bob") is SPARK
        engines.wanted["Bob"] = INLINE
        assert await engines.apply(ready=True)
        assert router.orders[1:] == ["engine Qm9i inline"]


async def test_a_router_that_restarted_is_told_again_and_a_job_that_is_gone_loses_its_phones() -> None:
    router = ToldRouter()
    async with listening(router) as port:
        engines = PhoneEngines(PEOPLE, BOTH, port, "secret")
        await engines.apply(ready=True)
        engines.forget()
        assert engines.engine_of("Bob") is INLINE
        await engines.apply(ready=True)
        await engines.apply(ready=False)
        assert router.orders == ["engine Qm9i spark", "engine Qm9i spark", "engine Qm9i inline"]


async def test_a_refusal_and_a_router_that_is_away_are_tried_again() -> None:
    router = ToldRouter(answer_with="error: no such token")
    async with listening(router) as port:
        engines = PhoneEngines(PEOPLE, SPARK, port, "secret")
        assert not await engines.apply(ready=True)
        assert engines.told == {}
    assert not await engines.apply(ready=True)
    assert engines.told == {}
