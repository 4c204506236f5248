"""The table of notification subscriptions, which is the queue of the agent's workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tocsin.agent.store.interface import Completion
from tocsin.agent.store.records import AgentSubscription, SubscriptionPhase
from tocsin.agent.store.sqlite.connection_tables import connection, set_notifier
from tocsin.agent.store.sqlite.database import SqliteSession
from tocsin.agent.store.sqlite.rows import (
    SUBSCRIPTION,
    location,
    location_text,
    marks,
    read_subscription,
    subscription_row,
)
from tocsin.protocol.addresses import RouterLocation, Scheme

# The same conditions as those of the indices, which have the order of `_FIRST`.
_AT_SMP: Final = "smp_router = ? AND action IN ('K', 'O', 'F', 'P', 'D')"
_AT_NTF: Final = "ntf_router = ? AND action IN ('N', 'C')"
_FIRST: Final = "ORDER BY ready_at, due_at, connection_id"
RESULTS: Final = ("notifier_id", "subscription_id", "token_id", "phase", "status")
"""Columns that an action determines, as opposed to the next action."""


def subscription(session: SqliteSession, connection_id: str) -> AgentSubscription | None:
    row = session.database.execute(
        f"SELECT {SUBSCRIPTION} FROM subscriptions WHERE connection_id = ?",  # noqa: S608 - our own columns
        (connection_id,),
    ).fetchone()
    return None if row is None else read_subscription(row)


def subscriptions(
    session: SqliteSession, connection_ids: Sequence[str] | None = None
) -> list[AgentSubscription]:
    if connection_ids is not None:
        found = (subscription(session, each) for each in connection_ids)
        return [row for row in found if row is not None]
    rows = session.database.execute(f"SELECT {SUBSCRIPTION} FROM subscriptions ORDER BY connection_id")  # noqa: S608
    return [read_subscription(row) for row in rows]


def put_subscriptions(session: SqliteSession, wanted: Sequence[AgentSubscription]) -> list[AgentSubscription]:
    return [
        _written(session, each, subscription(session, each.connection_id))
        for each in wanted
        if connection(session, each.connection_id) is not None
    ]


def due_actions(
    session: SqliteSession, router: RouterLocation, *, at_smp_router: bool, now: float, limit: int
) -> list[AgentSubscription]:
    rows = session.database.execute(
        f"SELECT {SUBSCRIPTION} FROM subscriptions WHERE {_condition(at_smp_router)} AND ready_at <= ? "  # noqa: S608
        f"{_FIRST} LIMIT ?",
        (_text(router, at_smp_router), now, limit),
    )
    return [read_subscription(row) for row in rows]


def next_due_at(session: SqliteSession, router: RouterLocation, *, at_smp_router: bool) -> float | None:
    found = session.database.execute(
        f"SELECT ready_at FROM subscriptions WHERE {_condition(at_smp_router)} {_FIRST} LIMIT 1",  # noqa: S608
        (_text(router, at_smp_router),),
    ).fetchone()
    return None if found is None else found[0]


def routers_with_actions(session: SqliteSession, *, at_smp_router: bool) -> list[RouterLocation]:
    column, actions = (
        ("smp_router", "'K', 'O', 'F', 'P', 'D'") if at_smp_router else ("ntf_router", "'N', 'C'")
    )
    rows = session.database.execute(
        f"SELECT DISTINCT {column} FROM subscriptions WHERE action IN ({actions}) ORDER BY 1"  # noqa: S608
    )
    return [location(text) for (text,) in rows]


def complete(session: SqliteSession, completions: Sequence[Completion]) -> list[bool]:
    return [_completed(session, each) for each in completions]


def _completed(session: SqliteSession, completion: Completion) -> bool:
    done, then = completion.done, completion.then
    row = subscription(session, done.connection_id)
    if row is None:
        return False
    if completion.queue is not None:
        set_notifier(session, done.connection_id, completion.queue.number, completion.queue.notifier)
    if row.version == done.version:
        if then is None:
            session.database.execute(
                "DELETE FROM subscriptions WHERE connection_id = ?", (done.connection_id,)
            )
        else:
            _written(session, then, row)
        return True
    _written(session, _merged(row, done, then), row)
    return False


def _merged(
    row: AgentSubscription, done: AgentSubscription, then: AgentSubscription | None
) -> AgentSubscription:
    """Merge what the action determined into the present row, whose next action is the supervisor's (ntf.md 6.5)."""
    if then is None:
        return replace(
            row,
            phase=SubscriptionPhase.DELETED,
            notifier_id=None,
            subscription_id=None,
            token_id=None,
            status=None,
        )
    found = {name: getattr(then, name) for name in RESULTS if getattr(then, name) != getattr(done, name)}
    return replace(row, **found)


def _written(
    session: SqliteSession, wanted: AgentSubscription, row: AgentSubscription | None
) -> AgentSubscription:
    written = replace(wanted, version=1 if row is None else row.version + 1)
    session.database.execute(
        f"INSERT OR REPLACE INTO subscriptions ({SUBSCRIPTION}) VALUES ({marks(SUBSCRIPTION)})",  # noqa: S608
        subscription_row(written),
    )
    return written


def _condition(at_smp_router: bool) -> str:
    return _AT_SMP if at_smp_router else _AT_NTF


def _text(router: RouterLocation, at_smp_router: bool) -> str:
    return location_text(router, Scheme.SMP if at_smp_router else Scheme.NTF)
