"""Connections and their queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tocsin.agent.store.records import (
    AgentConnection,
    NotifiedQueue,
    QueueNotifier,
    ReceiveQueue,
    SendQueue,
)
from tocsin.agent.store.sqlite.database import SqliteSession
from tocsin.agent.store.sqlite.priority_table import note_difference
from tocsin.agent.store.sqlite.rows import (
    NOTIFIED_QUEUE,
    RECEIVE_QUEUE,
    SEND_QUEUE,
    Row,
    assignments,
    location,
    marks,
    notifier_place,
    notifier_row,
    read_notified_queue,
    read_receive_queue,
    read_send_queue,
    receive_queue_row,
    send_queue_row,
)
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.ntf.subscription_commands import NotifierQueue


def add_connection(
    session: SqliteSession,
    connection: AgentConnection,
    receive: ReceiveQueue | None,
    send: SendQueue | None,
) -> None:
    session.database.execute(
        "INSERT INTO connections (connection_id, notifications, minimum) VALUES (?, ?, ?)",
        (connection.connection_id, connection.notifications, connection.minimum),
    )
    if receive is not None:
        add_receive_queue(session, receive)
    if send is not None:
        add_send_queue(session, send)


def connection(session: SqliteSession, connection_id: str) -> AgentConnection | None:
    row = session.database.execute(f"{_SELECT} AND connection_id = ?", (connection_id,)).fetchone()
    return None if row is None else _connection(row)


def connections(session: SqliteSession) -> list[AgentConnection]:
    return [_connection(row) for row in session.database.execute(_SELECT)]


def _connection(row: Row) -> AgentConnection:
    connection_id, notifications, minimum = row
    return AgentConnection(connection_id, bool(notifications), MinimumPriority(minimum))


_SELECT: Final = "SELECT connection_id, notifications, minimum FROM connections WHERE is_left = 0"


def unfinished_connections(session: SqliteSession) -> list[str]:
    rows = session.database.execute(
        "SELECT connection_id FROM send_queues WHERE secured = 0 "
        "UNION SELECT connection_id FROM receive_queues WHERE is_primary = 0 "
        "UNION SELECT connection_id FROM connections WHERE is_left = 1"
    )
    return [connection_id for (connection_id,) in rows]


def leave_connection(session: SqliteSession, connection_id: str) -> None:
    for table in ("send_queues", "subscriptions", "kept_messages", "priority_changes"):
        session.database.execute(f"DELETE FROM {table} WHERE connection_id = ?", (connection_id,))  # noqa: S608
    # The notifier stays, to prove the deletion, but no push finds it.
    for change in ("connections SET is_left = 1", "receive_queues SET notifier_place = NULL"):
        session.database.execute(f"UPDATE {change} WHERE connection_id = ?", (connection_id,))


def delete_connection(session: SqliteSession, connection_id: str) -> None:
    session.database.execute("DELETE FROM connections WHERE connection_id = ?", (connection_id,))


def set_notifications(
    session: SqliteSession,
    connection_id: str,
    enabled: bool,
    minimum: MinimumPriority = MinimumPriority.ALL,
) -> bool:
    changed = session.database.execute(
        "UPDATE connections SET notifications = ?1, minimum = ?2 "
        "WHERE connection_id = ?3 AND (notifications != ?1 OR minimum != ?2)",
        (enabled, minimum, connection_id),
    )
    note_difference(session, connection_id)
    return changed.rowcount > 0


def add_receive_queue(session: SqliteSession, queue: ReceiveQueue) -> None:
    if queue.primary:
        session.database.execute(
            "UPDATE receive_queues SET is_primary = 0 WHERE connection_id = ?", (queue.connection_id,)
        )
    place = None if queue.notifier is None else notifier_place(queue.router)
    session.database.execute(
        f"INSERT INTO receive_queues ({RECEIVE_QUEUE}, notifier_place) VALUES ({marks(RECEIVE_QUEUE)}, ?)",  # noqa: S608
        (*receive_queue_row(queue, session.vault), place),
    )
    note_difference(session, queue.connection_id)


def set_primary(session: SqliteSession, connection_id: str, number: int) -> None:
    known = session.database.execute(
        "SELECT 1 FROM receive_queues WHERE connection_id = ? AND number = ?", (connection_id, number)
    ).fetchone()
    if known:
        # In two statements, because the index never allows two primary queues.
        for change in ("is_primary = 0 WHERE number != ?2 AND", "is_primary = 1 WHERE number = ?2 AND"):
            session.database.execute(
                f"UPDATE receive_queues SET {change} connection_id = ?1",  # noqa: S608 - our own words
                (connection_id, number),
            )
        note_difference(session, connection_id)


def receive_queues(session: SqliteSession, connection_id: str) -> list[ReceiveQueue]:
    rows = session.database.execute(
        f"SELECT {RECEIVE_QUEUE} FROM receive_queues WHERE connection_id = ? "  # noqa: S608
        "ORDER BY is_primary DESC, number DESC",
        (connection_id,),
    )
    return [read_receive_queue(row, session.vault) for row in rows]


def primary_queues(session: SqliteSession, connection_ids: Sequence[str]) -> list[ReceiveQueue]:
    found: list[ReceiveQueue] = []
    for connection_id in connection_ids:
        rows = session.database.execute(
            f"SELECT {RECEIVE_QUEUE} FROM receive_queues WHERE connection_id = ? AND is_primary = 1",  # noqa: S608
            (connection_id,),
        )
        found.extend(read_receive_queue(row, session.vault) for row in rows)
    return found


def notified_queues(session: SqliteSession, queues: Sequence[NotifierQueue]) -> list[NotifiedQueue | None]:
    return [_notified_queue(session, each) for each in queues]


def _notified_queue(session: SqliteSession, queue: NotifierQueue) -> NotifiedQueue | None:
    row = session.database.execute(
        f"SELECT {NOTIFIED_QUEUE} FROM receive_queues WHERE notifier_place = ? AND notifier_id = ?",  # noqa: S608
        (notifier_place(queue.router), queue.notifier_id),
    ).fetchone()
    return None if row is None else read_notified_queue(row, session.vault)


def secure_queue(session: SqliteSession, connection_id: str, number: int, sender_key: bytes) -> None:
    session.database.execute(
        "UPDATE receive_queues SET sender_key = ? WHERE connection_id = ? AND number = ?",
        (sender_key, connection_id, number),
    )


def set_notifier(
    session: SqliteSession, connection_id: str, number: int, notifier: QueueNotifier | None
) -> None:
    row = session.database.execute(
        "SELECT router FROM receive_queues WHERE connection_id = ? AND number = ?", (connection_id, number)
    ).fetchone()
    if row is None:
        return
    place = None if notifier is None else notifier_place(location(row[0]))
    if notifier is not None:
        # A router that was restored from a backup may reuse an id that a queue here still has.
        session.database.execute(
            f"UPDATE receive_queues SET {_NO_NOTIFIER} WHERE notifier_place = ? AND notifier_id = ?",  # noqa: S608
            (place, notifier.notifier_id),
        )
    session.database.execute(
        "UPDATE receive_queues SET notifier_place = ?, notifier_id = ?, notifier_key_sealed = ?, "
        "notifier_secret_sealed = ?, notifier_minimum = ? WHERE connection_id = ? AND number = ?",
        (place, *notifier_row(connection_id, number, notifier, session.vault), connection_id, number),
    )
    note_difference(session, connection_id)


def clear_notifiers(session: SqliteSession, connection_ids: Sequence[str]) -> None:
    for connection_id in connection_ids:
        session.database.execute(
            f"UPDATE receive_queues SET {_NO_NOTIFIER} WHERE connection_id = ?",  # noqa: S608 - our own columns
            (connection_id,),
        )
        note_difference(session, connection_id)


_NO_NOTIFIER: Final = (
    "notifier_place = NULL, notifier_id = NULL, notifier_key_sealed = NULL, notifier_secret_sealed = NULL, "
    "notifier_minimum = NULL"
)


def delete_receive_queue(session: SqliteSession, connection_id: str, number: int) -> None:
    session.database.execute(
        "DELETE FROM receive_queues WHERE connection_id = ? AND number = ?", (connection_id, number)
    )


def add_send_queue(session: SqliteSession, queue: SendQueue) -> None:
    session.database.execute(
        f"INSERT INTO send_queues ({SEND_QUEUE}) VALUES ({marks(SEND_QUEUE)})",  # noqa: S608 - our own columns
        send_queue_row(queue, session.vault),
    )


def send_queues(session: SqliteSession, connection_id: str) -> list[SendQueue]:
    rows = session.database.execute(
        f"SELECT {SEND_QUEUE} FROM send_queues WHERE connection_id = ? ORDER BY number DESC",  # noqa: S608
        (connection_id,),
    )
    return [read_send_queue(row, session.vault) for row in rows]


def update_send_queue(session: SqliteSession, queue: SendQueue) -> None:
    session.database.execute(
        f"UPDATE send_queues SET {assignments(SEND_QUEUE)} WHERE connection_id = ? AND number = ?",  # noqa: S608
        (*send_queue_row(queue, session.vault), queue.connection_id, queue.number),
    )


def delete_send_queue(session: SqliteSession, connection_id: str, number: int) -> None:
    session.database.execute(
        "DELETE FROM send_queues WHERE connection_id = ? AND number = ?", (connection_id, number)
    )
