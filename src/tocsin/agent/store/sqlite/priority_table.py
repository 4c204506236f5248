"""Connections whose SMP router has another minimum priority than they want."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tocsin.agent.store.records import PriorityChange
from tocsin.agent.store.sqlite.database import SqliteSession
from tocsin.agent.store.sqlite.rows import location, location_text
from tocsin.protocol.addresses import RouterLocation, Scheme
from tocsin.protocol.direct.priorities import MinimumPriority

_WANTED: Final = "CASE WHEN connections.notifications THEN connections.minimum ELSE 0 END"
_CHANGES: Final = (
    "FROM priority_changes CROSS JOIN connections USING (connection_id) CROSS JOIN receive_queues "
    "USING (connection_id) WHERE is_primary = 1 AND notifier_id IS NOT NULL"
)
"""Join from the few connections that differ to their queues, in this order."""


def note_difference(session: SqliteSession, connection_id: str) -> None:
    """Update the table after a change of a connection, its notifier or its primary queue."""
    session.database.execute("DELETE FROM priority_changes WHERE connection_id = ?", (connection_id,))
    session.database.execute(
        "INSERT INTO priority_changes SELECT connection_id FROM connections JOIN receive_queues "  # noqa: S608
        "USING (connection_id) WHERE connection_id = ? AND is_primary = 1 AND notifier_id IS NOT NULL "
        f"AND notifier_minimum != {_WANTED}",
        (connection_id,),
    )


def routers_with_priority_changes(session: SqliteSession) -> list[RouterLocation]:
    rows = session.database.execute(f"SELECT DISTINCT router {_CHANGES} ORDER BY 1")
    return [location(text) for (text,) in rows]


def priority_changes(session: SqliteSession, router: RouterLocation) -> list[PriorityChange]:
    rows = session.database.execute(
        f"SELECT connection_id, number, recipient_id, key_sealed, notifier_id, notifier_minimum, {_WANTED} "
        f"{_CHANGES} AND router = ?",
        (location_text(router, Scheme.SMP),),
    )
    return [
        PriorityChange(
            connection_id,
            number,
            recipient_id,
            session.vault.unseal(key, f"receive_queues/{connection_id}/{number}/key"),
            notifier_id,
            MinimumPriority(present),
            MinimumPriority(wanted),
        )
        for connection_id, number, recipient_id, key, notifier_id, present, wanted in rows
    ]


def priorities_set(session: SqliteSession, changes: Sequence[PriorityChange]) -> None:
    for change in changes:
        session.database.execute(
            "UPDATE receive_queues SET notifier_minimum = ? "
            "WHERE connection_id = ? AND number = ? AND notifier_id = ?",
            (change.wanted, change.connection_id, change.number, change.notifier_id),
        )
        note_difference(session, change.connection_id)
