"""How SQLite finds what the agent asks for often: by an index, whatever the number of connections."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.unit.stores.agent_samples import NOTIFIER, NTF, SMP, named, receive_queue, subscription
from tocsin.protocol.addresses import RouterLocation
from tocsin.stores.agent_records import AgentConnection, KeptMessage, NextAction
from tocsin.stores.sqlite import connection_tables, message_table, subscription_table
from tocsin.stores.sqlite.database import Session
from tocsin.stores.sqlite.migrations import MIGRATIONS, migrate
from tocsin.stores.sqlite.vault import Vault

BEFORE_READY_AT = 3
"""Steps that there were when `due_at` alone was in the indices."""


@pytest.fixture
def session() -> Iterator[Session]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        migrate(database)
        yield Session(database, Vault())


def plans(session: Session, work: Callable[[], object]) -> list[str]:
    """Of every statement of this work, one line for each step."""
    statements: list[str] = []
    session.database.set_trace_callback(statements.append)
    work()
    session.database.set_trace_callback(None)
    return [row[3] for each in statements for row in session.database.execute(f"EXPLAIN QUERY PLAN {each}")]


@pytest.mark.parametrize(("router", "at_smp_router"), [(SMP, True), (NTF, False)])
def test_worker_looks_only_at_the_rows_it_takes(
    session: Session, router: RouterLocation, at_smp_router: bool
) -> None:
    """In their order, so that nothing is sorted, and not at checks whose time has not come."""
    index = "smp_actions (smp_router=?" if at_smp_router else "ntf_actions (ntf_router=?"
    [step] = plans(
        session, lambda: subscription_table.due_actions(session, router, at_smp_router, now=1.0, limit=150)
    )
    assert step.endswith(f"{index} AND ready_at<?)")
    [step] = plans(session, lambda: subscription_table.next_due_at(session, router, at_smp_router))
    assert step.endswith(f"{index})")


def test_nothing_that_is_done_for_each_connection_looks_at_all_of_them(session: Session) -> None:
    queue = receive_queue("a", notifier=NOTIFIER)

    def work() -> None:
        connection_tables.add_connection(session, AgentConnection("a"), queue, None)
        subscription_table.put_subscriptions(session, [subscription("a")])
        subscription_table.subscriptions(session, ["a"])
        connection_tables.primary_queues(session, ["a"])
        connection_tables.receive_queues(session, "a")
        connection_tables.notified_queue(session, named(queue))
        connection_tables.set_notifier(session, "a", 1, NOTIFIER)
        message_table.keep_message(session, KeptMessage("a", 1, b"m", 7, b"body"))
        message_table.keep_message(session, KeptMessage("a", 1, b"m", 7, b"body"))
        message_table.forget_messages(session, [1])
        connection_tables.delete_connection(session, "a")

    steps = plans(session, work)
    assert any("USING INDEX notifiers" in step for step in steps), steps
    assert not [step for step in steps if step.startswith("SCAN")], steps


def test_rows_of_an_older_file_are_found_by_the_new_indices() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        migrate(database, MIGRATIONS[:BEFORE_READY_AT])
        session = Session(database, Vault())
        rows = [
            subscription("a"),
            subscription("b", action=NextAction.CHECK, due_at=500.0),
            subscription("c", action=NextAction.SUBSCRIBE, due_at=900.0),
        ]
        for row in rows:
            connection_tables.add_connection(session, AgentConnection(row.connection_id), None, None)
        subscription_table.put_subscriptions(session, rows)
        migrate(database)

        def due(at_smp_router: bool, now: float) -> list[str]:
            router = SMP if at_smp_router else NTF
            found = subscription_table.due_actions(session, router, at_smp_router, now, 9)
            return [row.connection_id for row in found]

        assert due(at_smp_router=True, now=0.0) == ["a"]
        assert due(at_smp_router=False, now=499.0) == ["c"]
        assert due(at_smp_router=False, now=500.0) == ["c", "b"]
