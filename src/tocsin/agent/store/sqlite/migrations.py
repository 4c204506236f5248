"""The tables of an agent's file, as named steps in order of application.

Each step is applied in one transaction with its record, so a crash leaves whole steps only. A step that has been
released never changes: later changes are new steps. `roll_back` undoes steps, newest first, for an older version.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from tocsin.durable.schema_versions import refuse_loss, to_undo
from tocsin.errors import StoreError


class SqliteMigration(NamedTuple):
    name: str
    statements: tuple[str, ...]
    down: tuple[str, ...] = ()
    """Statements that undo it; none for the first."""
    losses: tuple[tuple[str, str], ...] = ()
    """Rows that older versions have no place for: a name, and the end of a `SELECT count(*) FROM`."""


_SMP_ACTIONS: Final = """CREATE INDEX smp_actions ON subscriptions (smp_router, ready_at, due_at, connection_id)
               WHERE action IN ('K', 'D')"""
_NTF_ACTIONS: Final = """CREATE INDEX ntf_actions ON subscriptions (ntf_router, ready_at, due_at, connection_id)
               WHERE action IN ('N', 'C')"""
_READY_AT: Final = """ALTER TABLE subscriptions ADD COLUMN ready_at REAL
               GENERATED ALWAYS AS (CASE WHEN action = 'C' THEN ifnull(due_at, 0.0) ELSE 0.0 END) VIRTUAL"""


# Columns that end in `_sealed` hold secrets: plain, or encrypted under the passphrase.
MIGRATIONS: Final = (
    SqliteMigration(
        "0001_connections",
        (
            """CREATE TABLE connections (
                connection_id TEXT PRIMARY KEY,
                notifications INTEGER NOT NULL
            ) STRICT, WITHOUT ROWID""",
            """CREATE TABLE receive_queues (
                connection_id TEXT NOT NULL REFERENCES connections ON DELETE CASCADE,
                number INTEGER NOT NULL,
                router TEXT NOT NULL,
                recipient_id BLOB NOT NULL,
                key_sealed BLOB NOT NULL,
                secret_sealed BLOB NOT NULL,
                sender_id BLOB NOT NULL,
                peer_key_sealed BLOB NOT NULL,
                sender_key BLOB,
                -- hosts and port: how a notification names the router
                notifier_place TEXT,
                notifier_id BLOB,
                notifier_key_sealed BLOB,
                notifier_secret_sealed BLOB,
                last_message_at INTEGER,
                is_primary INTEGER NOT NULL,
                PRIMARY KEY (connection_id, number)
            ) STRICT, WITHOUT ROWID""",
            """CREATE UNIQUE INDEX notifiers ON receive_queues (notifier_place, notifier_id)
               WHERE notifier_id IS NOT NULL""",
            """CREATE UNIQUE INDEX primary_queues ON receive_queues (connection_id) WHERE is_primary = 1""",
            """CREATE TABLE send_queues (
                connection_id TEXT NOT NULL REFERENCES connections ON DELETE CASCADE,
                number INTEGER NOT NULL,
                router TEXT NOT NULL,
                sender_id BLOB NOT NULL,
                key_sealed BLOB NOT NULL,
                peer_key BLOB NOT NULL,
                secured INTEGER NOT NULL,
                PRIMARY KEY (connection_id, number)
            ) STRICT, WITHOUT ROWID""",
        ),
    ),
    SqliteMigration(
        "0002_tokens",
        (
            """CREATE TABLE tokens (
                number INTEGER PRIMARY KEY CHECK (number = 1),
                device_token_sealed BLOB NOT NULL,
                router TEXT NOT NULL,
                key_sealed BLOB NOT NULL,
                dh_key_sealed BLOB NOT NULL,
                status TEXT NOT NULL,
                action TEXT,
                code_sealed BLOB,
                mode TEXT NOT NULL,
                token_id BLOB,
                secret_sealed BLOB
            ) STRICT""",
            """CREATE TABLE tokens_to_delete (
                number INTEGER PRIMARY KEY AUTOINCREMENT,
                router TEXT NOT NULL,
                token_id BLOB NOT NULL,
                key_sealed BLOB NOT NULL,
                created_at INTEGER NOT NULL
            ) STRICT""",
        ),
        (
            "DROP TABLE tokens",
            "DROP TABLE tokens_to_delete",
        ),
        (
            ("tokens", "tokens"),
            ("tokens to delete", "tokens_to_delete"),
        ),
    ),
    SqliteMigration(
        "0003_subscriptions",
        (
            """CREATE TABLE subscriptions (
                connection_id TEXT PRIMARY KEY REFERENCES connections ON DELETE CASCADE,
                smp_router TEXT NOT NULL,
                ntf_router TEXT NOT NULL,
                phase TEXT NOT NULL,
                action TEXT,
                due_at REAL,
                notifier_id BLOB,
                subscription_id BLOB,
                token_id BLOB,
                status TEXT,
                version INTEGER NOT NULL
            ) STRICT, WITHOUT ROWID""",
            """CREATE INDEX smp_actions ON subscriptions (smp_router, due_at) WHERE action IN ('K', 'D')""",
            """CREATE INDEX ntf_actions ON subscriptions (ntf_router, due_at) WHERE action IN ('N', 'C')""",
        ),
        ("DROP TABLE subscriptions",),
        (("subscriptions", "subscriptions"),),
    ),
    SqliteMigration(
        "0004_ready_actions",
        (
            # A check waits for its time, all else is ready at once. In the indices in the order in which the workers
            # take rows, so that a worker looks at those it takes and at no others.
            """ALTER TABLE subscriptions ADD COLUMN ready_at REAL
               GENERATED ALWAYS AS (CASE WHEN action = 'C' THEN ifnull(due_at, 0.0) ELSE 0.0 END) VIRTUAL""",
            "DROP INDEX smp_actions",
            "DROP INDEX ntf_actions",
            """CREATE INDEX smp_actions ON subscriptions (smp_router, ready_at, due_at, connection_id)
               WHERE action IN ('K', 'D')""",
            """CREATE INDEX ntf_actions ON subscriptions (ntf_router, ready_at, due_at, connection_id)
               WHERE action IN ('N', 'C')""",
        ),
        (
            "DROP INDEX smp_actions",
            "DROP INDEX ntf_actions",
            "ALTER TABLE subscriptions DROP COLUMN ready_at",
            """CREATE INDEX smp_actions ON subscriptions (smp_router, due_at) WHERE action IN ('K', 'D')""",
            """CREATE INDEX ntf_actions ON subscriptions (ntf_router, due_at) WHERE action IN ('N', 'C')""",
        ),
    ),
    SqliteMigration(
        "0005_kept_messages",
        (
            "ALTER TABLE receive_queues ADD COLUMN last_message_id BLOB",
            # AUTOINCREMENT: a number that an app settles late is never that of another message.
            """CREATE TABLE kept_messages (
                number INTEGER PRIMARY KEY AUTOINCREMENT,
                connection_id TEXT NOT NULL REFERENCES connections ON DELETE CASCADE,
                queue_number INTEGER NOT NULL,
                message_id BLOB NOT NULL,
                sent_at INTEGER,
                body_sealed BLOB,
                reason TEXT NOT NULL
            ) STRICT""",
            "CREATE INDEX kept_messages_of_connections ON kept_messages (connection_id)",
        ),
        (
            "DROP TABLE kept_messages",
            "ALTER TABLE receive_queues DROP COLUMN last_message_id",
        ),
        (
            ("messages that the app has not confirmed", "kept_messages"),
            ("ids of last messages", "receive_queues WHERE last_message_id IS NOT NULL"),
        ),
    ),
    SqliteMigration(
        "0006_direct_notifications",
        (
            # A public key, and when it ends.
            "ALTER TABLE tokens ADD COLUMN ntf_key BLOB",
            "ALTER TABLE tokens ADD COLUMN ntf_key_expires_at INTEGER",
            # Asking what became of a packet waits for its time, as a check does.
            "DROP INDEX smp_actions",
            "DROP INDEX ntf_actions",
            "ALTER TABLE subscriptions DROP COLUMN ready_at",
            """ALTER TABLE subscriptions ADD COLUMN ready_at REAL
               GENERATED ALWAYS AS (CASE WHEN action IN ('C', 'F') THEN ifnull(due_at, 0.0) ELSE 0.0 END) VIRTUAL""",
            """CREATE INDEX smp_actions ON subscriptions (smp_router, ready_at, due_at, connection_id)
               WHERE action IN ('K', 'O', 'F', 'P', 'D')""",
            """CREATE INDEX ntf_actions ON subscriptions (ntf_router, ready_at, due_at, connection_id)
               WHERE action IN ('N', 'C')""",
        ),
        (
            "DROP INDEX smp_actions",
            "DROP INDEX ntf_actions",
            "ALTER TABLE subscriptions DROP COLUMN ready_at",
            # They begin anew, with keys of the older kind.
            "UPDATE subscriptions SET action = 'K' WHERE action IN ('O', 'F', 'P')",
            _READY_AT,
            _SMP_ACTIONS,
            _NTF_ACTIONS,
            "ALTER TABLE tokens DROP COLUMN ntf_key_expires_at",
            "ALTER TABLE tokens DROP COLUMN ntf_key",
        ),
        (
            ("keys of NTF routers for direct notifications", "tokens WHERE ntf_key IS NOT NULL"),
            (
                "subscriptions with a step of direct notifications",
                "subscriptions WHERE action IN ('O', 'F', 'P')",
            ),
        ),
    ),
    SqliteMigration(
        "0007_priorities",
        (
            "ALTER TABLE connections ADD COLUMN minimum INTEGER NOT NULL DEFAULT 1",
            # What the SMP router has; nothing without a notifier.
            "ALTER TABLE receive_queues ADD COLUMN notifier_minimum INTEGER",
            "UPDATE receive_queues SET notifier_minimum = 1 WHERE notifier_id IS NOT NULL",
            # Connections whose SMP router has another minimum than they want.
            """CREATE TABLE priority_changes (
                connection_id TEXT PRIMARY KEY REFERENCES connections ON DELETE CASCADE
            ) STRICT, WITHOUT ROWID""",
        ),
        (
            "DROP TABLE priority_changes",
            "ALTER TABLE receive_queues DROP COLUMN notifier_minimum",
            "ALTER TABLE connections DROP COLUMN minimum",
        ),
        (
            ("connections with a minimum priority", "connections WHERE minimum <> 1"),
            ("queues with a minimum priority", "receive_queues WHERE notifier_minimum <> 1"),
            ("changes of priorities", "priority_changes"),
        ),
    ),
    SqliteMigration(
        "0008_endpoint_secrets",
        (
            """CREATE TABLE endpoint_secrets (
                number INTEGER PRIMARY KEY,
                device_token_sealed BLOB NOT NULL,
                secret_sealed BLOB NOT NULL
            ) STRICT""",
        ),
        ("DROP TABLE endpoint_secrets",),
        (("secrets of Web Push endpoints", "endpoint_secrets"),),
    ),
    SqliteMigration(
        "0009_left_connections",
        # Connections that the app deleted, whose queues are not deleted at their routers yet.
        ("ALTER TABLE connections ADD COLUMN is_left INTEGER NOT NULL DEFAULT 0",),
        ("ALTER TABLE connections DROP COLUMN is_left",),
        (("connections that are being deleted", "connections WHERE is_left = 1"),),
    ),
    SqliteMigration(
        "0010_message_priorities",
        ("ALTER TABLE kept_messages ADD COLUMN priority INTEGER NOT NULL DEFAULT 1",),
        ("ALTER TABLE kept_messages DROP COLUMN priority",),
        (("marks of mentions among messages", "kept_messages WHERE priority > 1"),),
    ),
)

_RECORD: Final = """CREATE TABLE IF NOT EXISTS migrations (
    name TEXT PRIMARY KEY, applied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) STRICT"""


def migrate(database: sqlite3.Connection, steps: Sequence[SqliteMigration] = MIGRATIONS) -> list[str]:
    """Apply missing steps and return their names. Raises StoreError if a newer Tocsin has changed the file."""
    database.execute(_RECORD)
    applied = {name for (name,) in database.execute("SELECT name FROM migrations")}
    if unknown := applied - {step.name for step in steps}:
        raise StoreError(
            f"the agent's store was changed by a newer version of Tocsin: {', '.join(sorted(unknown))}; "
            "update Tocsin to open it"
        )
    missing = [step for step in steps if step.name not in applied]
    for step in missing:
        with _transaction(database):
            for statement in step.statements:
                database.execute(statement)
            database.execute("INSERT INTO migrations (name) VALUES (?)", (step.name,))
    return [step.name for step in missing]


def roll_back(
    database: sqlite3.Connection, keep: str, *, lose_data: bool, dry_run: bool
) -> tuple[list[str], list[str]]:
    """Undo all steps after `keep`, in one transaction. Returns their names and what was lost.

    Raises StoreError if that would lose data, unless the user accepts it.
    """
    applied = {name for (name,) in database.execute("SELECT name FROM migrations")}
    names = to_undo([step.name for step in MIGRATIONS if step.name in applied], keep)
    steps = [step for step in reversed(MIGRATIONS) if step.name in names]
    with _transaction(database, keep=not dry_run):
        counts = [
            (database.execute(f"SELECT count(*) FROM {rows}").fetchone()[0], what)  # noqa: S608 - no input
            for step in steps
            for what, rows in step.losses
        ]
        lost = [f"{count} {what}" for count, what in counts if count]
        if not lose_data:
            refuse_loss(lost, keep)
        for step in steps:
            for statement in step.down:
                database.execute(statement)
            database.execute("DELETE FROM migrations WHERE name = ?", (step.name,))
    return names, lost


@contextmanager
def _transaction(database: sqlite3.Connection, *, keep: bool = True) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT" if keep else "ROLLBACK")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
