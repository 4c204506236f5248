"""Notification subscriptions: the work queues of the agent's workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tocsin.agent.store.interface import Completion
from tocsin.agent.store.records import AgentSubscription, SubscriptionPhase
from tocsin.agent.store.sqlite.connections import connections, set_notifier
from tocsin.agent.store.sqlite.database import Session
from tocsin.agent.store.sqlite.rows import (
    SUBSCRIPTION,
    location,
    location_text,
    marks,
    subscription,
    subscription_row,
)
from tocsin.protocol.addresses import RouterLocation, Scheme

# As the conditions of the indices, whose order is that of `_FIRST`.
_AT_SMP: Final = "smp_router = ? AND action IN ('K', 'O', 'F', 'P', 'D')"
_AT_NTF: Final = "ntf_router = ? AND action IN ('N', 'C')"
_FIRST: Final = "ORDER BY ready_at, due_at, connection_id"
RESULTS: Final = ("notifier_id", "subscription_id", "token_id", "phase", "status")
"""What an action finds out, as opposed to what is to be done next."""


def one_subscription(session: Session, connection_id: str) -> AgentSubscription | None:
    row = session.database.execute(
        f"SELECT {SUBSCRIPTION} FROM subscriptions WHERE connection_id = ?",  # noqa: S608 - our own columns
        (connection_id,),
    ).fetchone()
    return None if row is None else subscription(row)


def subscriptions(session: Session, connection_ids: Sequence[str] | None) -> list[AgentSubscription]:
    if connection_ids is not None:
        found = (one_subscription(session, each) for each in connection_ids)
        return [row for row in found if row is not None]
    rows = session.database.execute(f"SELECT {SUBSCRIPTION} FROM subscriptions ORDER BY connection_id")  # noqa: S608
    return [subscription(row) for row in rows]


def put_subscriptions(session: Session, wanted: Sequence[AgentSubscription]) -> list[AgentSubscription]:
    return [
        _written(session, each, one_subscription(session, each.connection_id))
        for each in wanted
        if connections(session, each.connection_id)
    ]


def due_actions(
    session: Session, router: RouterLocation, at_smp_router: bool, now: float, limit: int
) -> list[AgentSubscription]:
    rows = session.database.execute(
        f"SELECT {SUBSCRIPTION} FROM subscriptions WHERE {_condition(at_smp_router)} AND ready_at <= ? "  # noqa: S608
        f"{_FIRST} LIMIT ?",
        (_text(router, at_smp_router), now, limit),
    )
    return [subscription(row) for row in rows]


def next_due_at(session: Session, router: RouterLocation, at_smp_router: bool) -> float | None:
    found = session.database.execute(
        f"SELECT ready_at FROM subscriptions WHERE {_condition(at_smp_router)} {_FIRST} LIMIT 1",  # noqa: S608
        (_text(router, at_smp_router),),
    ).fetchone()
    return None if found is None else found[0]


def routers_with_actions(session: Session, at_smp_router: bool) -> list[RouterLocation]:
    column, actions = (
        ("smp_router", "'K', 'O', 'F', 'P', 'D'") if at_smp_router else ("ntf_router", "'N', 'C'")
    )
    rows = session.database.execute(
        f"SELECT DISTINCT {column} FROM subscriptions WHERE action IN ({actions}) ORDER BY 1"  # noqa: S608
    )
    return [location(text) for (text,) in rows]


def complete(session: Session, completions: Sequence[Completion]) -> list[bool]:
    return [_completed(session, each) for each in completions]


def _completed(session: Session, completion: Completion) -> bool:
    done, then = completion.done, completion.then
    row = one_subscription(session, done.connection_id)
    if row is None:
        return False
    if completion.queue is not None:
        set_notifier(session, done.connection_id, completion.queue.number, completion.queue.notifier)
    if row.version == done.version:
        if then is None:
            delete_subscriptions(session, [done.connection_id])
        else:
            _written(session, then, row)
        return True
    _written(session, _merged(row, done, then), row)
    return False


def _merged(
    row: AgentSubscription, done: AgentSubscription, then: AgentSubscription | None
) -> AgentSubscription:
    """The row as it is now, with what the action found out; its next action is the supervisor's (ntf.md 6.5)."""
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


def delete_subscriptions(session: Session, connection_ids: Sequence[str]) -> None:
    session.database.executemany(
        "DELETE FROM subscriptions WHERE connection_id = ?", [(each,) for each in connection_ids]
    )


def _written(session: Session, wanted: AgentSubscription, row: AgentSubscription | None) -> AgentSubscription:
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
