"""Received messages: the last one of each queue, and those that the app has not settled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tocsin.agent.store.records import KeptMessage
from tocsin.agent.store.sqlite.database import SqliteSession
from tocsin.agent.store.sqlite.rows import KEPT_MESSAGE, kept_message_row, marks, read_kept_message


def message_received(
    session: SqliteSession,
    connection_id: str,
    number: int,
    sent_at: int | None,
    message_id: bytes | None = None,
) -> None:
    session.database.execute(
        "UPDATE receive_queues SET last_message_id = ifnull(?4, last_message_id), last_message_at = "
        "CASE WHEN ?1 > ifnull(last_message_at, -1) THEN ?1 ELSE last_message_at END "
        "WHERE connection_id = ?2 AND number = ?3",
        (sent_at, connection_id, number, message_id),
    )


def keep_message(session: SqliteSession, message: KeptMessage) -> KeptMessage | None:
    queue = (message.connection_id, message.queue_number)
    last = session.database.execute(
        "SELECT last_message_id FROM receive_queues WHERE connection_id = ? AND number = ?", queue
    ).fetchone()
    if last is None:
        return None
    if last[0] == message.message_id:
        return _kept_before(session, message)
    message_received(session, *queue, message.sent_at, message.message_id)
    added = session.database.execute(
        f"INSERT INTO kept_messages ({KEPT_MESSAGE}) VALUES (NULL, {marks(KEPT_MESSAGE)[3:]})",  # noqa: S608
        kept_message_row(message, session.vault),
    )
    assert added.lastrowid is not None
    return replace(message, number=added.lastrowid)


def _kept_before(session: SqliteSession, message: KeptMessage) -> KeptMessage | None:
    row = session.database.execute(
        "SELECT number FROM kept_messages WHERE connection_id = ? AND queue_number = ? AND message_id = ?",
        (message.connection_id, message.queue_number, message.message_id),
    ).fetchone()
    return None if row is None else replace(message, number=row[0])


def kept_messages(session: SqliteSession) -> list[KeptMessage]:
    rows = session.database.execute(f"SELECT {KEPT_MESSAGE} FROM kept_messages ORDER BY number")  # noqa: S608
    return [read_kept_message(row, session.vault) for row in rows]


def forget_messages(session: SqliteSession, numbers: Sequence[int]) -> None:
    session.database.executemany(
        "DELETE FROM kept_messages WHERE number = ?", [(number,) for number in numbers]
    )
