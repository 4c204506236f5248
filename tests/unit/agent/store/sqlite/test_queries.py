"""How SQLite finds what the agent asks for often: by an index, whatever the number of connections."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.doubles.agent_samples import NOTIFIER, NTF, SMP, named, receive_queue, subscription
from tocsin.agent.store.records import AgentConnection, KeptMessage, NextAction, QueueNotifier
from tocsin.agent.store.sqlite import (
    connection_tables,
    message_table,
    priority_table,
    subscription_table,
    token_tables,
)
from tocsin.agent.store.sqlite.database import SqliteSession
from tocsin.agent.store.sqlite.migrations import MIGRATIONS, migrate
from tocsin.agent.store.sqlite.rows import SUBSCRIPTION, marks, subscription_row
from tocsin.agent.store.sqlite.vault import Vault
from tocsin.protocol.addresses import RouterLocation, Scheme
from tocsin.protocol.direct.priorities import MinimumPriority

BEFORE_READY_AT = 3
"""Steps that there were when `due_at` alone was in the indices."""


@pytest.fixture
def session() -> Iterator[SqliteSession]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        migrate(database)
        yield SqliteSession(database, Vault())


def plans(session: SqliteSession, work: Callable[[], object]) -> list[str]:
    """Of every statement of this work, one line for each step."""
    statements: list[str] = []
    session.database.set_trace_callback(statements.append)
    work()
    session.database.set_trace_callback(None)
    return [row[3] for each in statements for row in session.database.execute(f"EXPLAIN QUERY PLAN {each}")]


@pytest.mark.parametrize(("router", "at_smp_router"), [(SMP, True), (NTF, False)])
def test_worker_looks_only_at_the_rows_it_takes(
    session: SqliteSession, router: RouterLocation, at_smp_router: bool
) -> None:
    """In their order, so that nothing is sorted, and not at checks whose time has not come."""
    index = "smp_actions (smp_router=?" if at_smp_router else "ntf_actions (ntf_router=?"
    [step] = plans(
        session,
        lambda: subscription_table.due_actions(
            session, router, at_smp_router=at_smp_router, now=1.0, limit=150
        ),
    )
    assert step.endswith(f"{index} AND ready_at<?)")
    [step] = plans(
        session, lambda: subscription_table.next_due_at(session, router, at_smp_router=at_smp_router)
    )
    assert step.endswith(f"{index})")


def test_nothing_that_is_done_for_each_connection_looks_at_all_of_them(session: SqliteSession) -> None:
    queue = receive_queue("a", notifier=NOTIFIER)

    def work() -> None:
        connection_tables.add_connection(session, AgentConnection("a"), queue, None)
        subscription_table.put_subscriptions(session, [subscription("a")])
        subscription_table.subscriptions(session, ["a"])
        connection_tables.primary_queues(session, ["a"])
        connection_tables.receive_queues(session, "a")
        connection_tables.notified_queues(session, [named(queue)])
        connection_tables.set_notifier(session, "a", 1, NOTIFIER)
        message_table.keep_message(session, KeptMessage("a", 1, b"m", 7, b"body"))
        message_table.keep_message(session, KeptMessage("a", 1, b"m", 7, b"body"))
        message_table.forget_messages(session, [1])
        connection_tables.set_notifications(session, "a", True, MinimumPriority.PRIORITY)
        connection_tables.clear_notifiers(session, ["a"])
        connection_tables.delete_connection(session, "a")

    steps = plans(session, work)
    assert any("USING INDEX notifiers" in step for step in steps), steps
    assert not [step for step in steps if step.startswith("SCAN")], steps


def test_rows_of_an_older_file_are_found_by_the_new_indices() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        migrate(database, MIGRATIONS[:BEFORE_READY_AT])
        session = SqliteSession(database, Vault())
        rows = [
            subscription("a"),
            subscription("b", action=NextAction.CHECK, due_at=500.0),
            subscription("c", action=NextAction.SUBSCRIBE, due_at=900.0),
        ]
        for row in rows:
            database.execute("INSERT INTO connections VALUES (?, 1)", (row.connection_id,))
            database.execute(
                f"INSERT INTO subscriptions ({SUBSCRIPTION}) VALUES ({marks(SUBSCRIPTION)})",  # noqa: S608
                subscription_row(row),
            )
        migrate(database)

        def due(at_smp_router: bool, now: float) -> list[str]:
            router = SMP if at_smp_router else NTF
            found = subscription_table.due_actions(
                session, router, at_smp_router=at_smp_router, now=now, limit=9
            )
            return [row.connection_id for row in found]

        assert due(at_smp_router=True, now=0.0) == ["a"]
        assert due(at_smp_router=False, now=499.0) == ["c"]
        assert due(at_smp_router=False, now=500.0) == ["c", "b"]


BEFORE_DIRECT = 5
"""Steps that there were before direct notifications."""


def test_file_from_before_direct_notifications_keeps_its_queues_token_and_checks() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        migrate(database, MIGRATIONS[:BEFORE_DIRECT])
        database.execute("INSERT INTO connections VALUES ('a', 1), ('b', 0)")
        for name, notifier in (("a", b"n" * 24), ("b", None)):
            database.execute(
                "INSERT INTO receive_queues (connection_id, number, router, recipient_id, key_sealed, secret_sealed, "
                "sender_id, peer_key_sealed, notifier_place, notifier_id, notifier_key_sealed, notifier_secret_sealed, "
                "is_primary) VALUES (?, 1, ?, x'01', x'02', x'03', x'04', x'05', ?, ?, ?, ?, 1)",
                (name, SMP.text(Scheme.SMP), *((notifier and part) for part in ("p", notifier, b"k", b"s"))),
            )
        device = b"AT0123abcd"
        database.execute(
            "INSERT INTO tokens VALUES (1, ?, ?, x'01', x'02', 'ACTIVE', 'C', NULL, 'INSTANT', x'03', x'04')",
            (device, NTF.text(Scheme.NTF)),
        )
        row = subscription("a", action=NextAction.CHECK, due_at=500.0, notifier_id=b"n" * 24)
        database.execute(
            f"INSERT INTO subscriptions ({SUBSCRIPTION}) VALUES ({marks(SUBSCRIPTION)})",  # noqa: S608
            subscription_row(row),
        )
        assert migrate(database) == [step.name for step in MIGRATIONS[BEFORE_DIRECT:]]
        session = SqliteSession(database, Vault())
        assert connection_tables.connections(session) == [AgentConnection("a"), AgentConnection("b", False)]
        [with_notifier] = connection_tables.receive_queues(session, "a")
        assert with_notifier.notifier == QueueNotifier(b"n" * 24, b"k", b"s", MinimumPriority.ALL)
        [without] = connection_tables.receive_queues(session, "b")
        assert without.notifier is None
        token = token_tables.token(session)
        assert token is not None
        assert token.ntf_key is None
        assert subscription_table.due_actions(session, NTF, at_smp_router=False, now=499.0, limit=9) == []
        assert subscription_table.due_actions(session, NTF, at_smp_router=False, now=500.0, limit=9) == [row]
        assert priority_table.routers_with_priority_changes(session) == []
