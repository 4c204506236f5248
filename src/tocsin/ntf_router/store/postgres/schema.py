"""The tables of an NTF store: those of the reference in its schema, and ours in another (ntf.md 5.3).

The reference's schema is created and recorded exactly as its own migrations do, so that either server accepts it. Our
schema is named after it, `ntf_server_tocsin`, and holds what the reference has no column for. The search path finds the
tables of both, so their names are unique.
"""

from __future__ import annotations

import re
from typing import Final

from tocsin.durable.postgres.database_errors import AnyConnection
from tocsin.durable.postgres.leases import DROP_LEASE_TABLES, DROP_UNABLE_TABLE, LEASE_TABLES, UNABLE_TABLE
from tocsin.durable.postgres.schema_owner import holder_of, schema_key
from tocsin.durable.postgres.schema_rollback import Loss, Undo, undo
from tocsin.durable.schema_versions import to_undo
from tocsin.errors import StoreError
from tocsin.ntf_router.store.postgres.functions import CREATE_FUNCTIONS, DROP_FUNCTIONS
from tocsin.ntf_router.store.postgres.rows import NO_KEY

DEFAULT_SCHEMA: Final = "ntf_server"
_LOCK_KEY: Final = int.from_bytes(b"tocsnntf", "big")
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,50}")

_INITIAL: Final = """
    CREATE TABLE tokens (
        token_id bytea NOT NULL PRIMARY KEY,
        push_provider text NOT NULL,
        push_provider_token bytea NOT NULL,
        status text NOT NULL,
        verify_key bytea NOT NULL,
        dh_priv_key bytea NOT NULL,
        dh_secret bytea NOT NULL,
        reg_code bytea NOT NULL,
        cron_interval bigint NOT NULL,
        cron_sent_at bigint,
        updated_at bigint
    );
    CREATE UNIQUE INDEX idx_tokens_push_provider_token
        ON tokens (push_provider, push_provider_token, verify_key);
    CREATE INDEX idx_tokens_status_cron_interval_sent_at
        ON tokens (status, cron_interval, (cron_sent_at + cron_interval * 60));

    CREATE TABLE smp_servers (
        smp_server_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        smp_host text NOT NULL,
        smp_port text NOT NULL,
        smp_keyhash bytea NOT NULL
    );
    CREATE UNIQUE INDEX idx_smp_servers ON smp_servers (smp_host, smp_port, smp_keyhash);

    CREATE TABLE subscriptions (
        subscription_id bytea NOT NULL PRIMARY KEY,
        token_id bytea NOT NULL REFERENCES tokens ON DELETE CASCADE ON UPDATE RESTRICT,
        smp_server_id bigint REFERENCES smp_servers ON DELETE RESTRICT ON UPDATE RESTRICT,
        smp_notifier_id bytea NOT NULL,
        smp_notifier_key bytea NOT NULL,
        status text NOT NULL
    );
    CREATE UNIQUE INDEX idx_subscriptions_smp_server_id_notifier_id
        ON subscriptions (smp_server_id, smp_notifier_id);
    CREATE INDEX idx_subscriptions_smp_server_id_status ON subscriptions (smp_server_id, status);
    CREATE INDEX idx_subscriptions_token_id ON subscriptions (token_id);

    CREATE TABLE last_notifications (
        token_ntf_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        token_id bytea NOT NULL REFERENCES tokens ON DELETE CASCADE ON UPDATE RESTRICT,
        subscription_id bytea NOT NULL REFERENCES subscriptions ON DELETE CASCADE ON UPDATE RESTRICT,
        sent_at timestamptz NOT NULL,
        nmsg_nonce bytea NOT NULL,
        nmsg_data bytea NOT NULL
    );
    CREATE UNIQUE INDEX idx_last_notifications_token_subscription
        ON last_notifications (token_id, subscription_id);
    CREATE INDEX idx_last_notifications_token_id_sent_at ON last_notifications (token_id, sent_at);
    CREATE INDEX idx_last_notifications_subscription_id ON last_notifications (subscription_id);
"""
_SERVICE_CERT: Final = """
    ALTER TABLE smp_servers ADD COLUMN ntf_service_id bytea;
    ALTER TABLE subscriptions ADD COLUMN ntf_service_assoc boolean NOT NULL DEFAULT FALSE;
    DROP INDEX idx_subscriptions_smp_server_id_status;
    CREATE INDEX idx_subscriptions_smp_server_id_ntf_service_status
        ON subscriptions (smp_server_id, ntf_service_assoc, status);
"""
_SERVICE_CERT_DOWN: Final = """
    DROP INDEX idx_subscriptions_smp_server_id_ntf_service_status;
    CREATE INDEX idx_subscriptions_smp_server_id_status ON subscriptions (smp_server_id, status);
    ALTER TABLE subscriptions DROP COLUMN ntf_service_assoc;
    ALTER TABLE smp_servers DROP COLUMN ntf_service_id;
"""
_MIGRATIONS: Final[tuple[tuple[str, str, str | None], ...]] = (
    ("20250417_initial", _INITIAL, None),
    ("20250517_service_cert", _SERVICE_CERT, _SERVICE_CERT_DOWN),
)
"""Name, statements, and statements that undo them, as the reference records them."""
LATER_MIGRATIONS: Final = {
    "20250830_queue_ids_hash": "counts and hashes of associated queues, kept by triggers",
    "20251219_service_cert_per_server": "a service certificate for each SMP router",
}
"""Migrations of version 7.0 (v7.md 6.4). A router uses a schema that has them, and does not make them: 7.0 does at its
start, and `tocsin migrate tables` does when an operator asks."""

_OWN: Final = """
    CREATE TABLE pending_notifications (
        subscription_id bytea NOT NULL PRIMARY KEY,
        token_id bytea NOT NULL,
        nonce bytea NOT NULL,
        received_at double precision NOT NULL
    );
    CREATE INDEX pending_notifications_token_id ON pending_notifications (token_id);
    CREATE INDEX pending_notifications_received_at ON pending_notifications (received_at);

    CREATE TABLE notification_totals (
        outcome text NOT NULL,
        part integer NOT NULL,
        count bigint NOT NULL,
        PRIMARY KEY (outcome, part)
    );

    CREATE TABLE token_registrations (
        token_id bytea NOT NULL PRIMARY KEY REFERENCES tokens ON DELETE CASCADE ON UPDATE CASCADE,
        registered_at bigint NOT NULL
    );
"""
TABLES: Final = (
    "tokens",
    "token_registrations",
    "smp_servers",
    "subscriptions",
    "last_notifications",
)
"""Tables whose statistics are kept fresh.

`pending_notifications` is not among them, because it is empty most of the time. Statistics of an empty table make plans
that take more than ten times as long once it has rows. Without statistics, PostgreSQL goes by the size of its file.
"""
_DIRECT: Final = """
    CREATE TABLE direct_gone (
        subscription_id bytea NOT NULL PRIMARY KEY REFERENCES subscriptions ON DELETE CASCADE ON UPDATE CASCADE,
        gone_at bigint NOT NULL
    );

    CREATE TABLE direct_ended (
        notifier_id bytea NOT NULL PRIMARY KEY,
        until bigint NOT NULL
    );

    CREATE TABLE direct_keys (
        single boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (single),
        keys bytea NOT NULL
    );
"""
_KEYLESS: Final = f"subscriptions WHERE smp_notifier_key = '\\x{NO_KEY.hex()}'"
_DIRECT_DOWN: Final = f"DROP TABLE direct_gone, direct_ended, direct_keys; DELETE FROM {_KEYLESS}"  # noqa: S608
_IDENTITY: Final = """
    DO $$
    BEGIN
        CREATE INDEX IF NOT EXISTS tocsin_subscriptions_notifier_id ON subscriptions (smp_notifier_id);
        CREATE INDEX IF NOT EXISTS tocsin_smp_servers_keyhash ON smp_servers (smp_keyhash);
    EXCEPTION WHEN insufficient_privilege THEN
        RAISE NOTICE 'the role does not own the tables: queues are found without an index of their ids';
    END
    $$
"""
"""On the reference's tables, whose own indices begin with a router's hosts. Its server does not mind them."""
_SERVICE_CREDENTIALS: Final = """
    CREATE TABLE service_credentials (
        smp_keyhash bytea NOT NULL PRIMARY KEY,
        certificates bytea NOT NULL,
        private_key bytea NOT NULL
    );
"""
"""Certificates of our services, where the reference's tables are those of 6.5 and have no columns for them."""
HEARTBEAT: Final = "owner_heartbeat"
_HEARTBEAT: Final = """
    CREATE TABLE owner_heartbeat (
        single boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (single),
        beats bigint NOT NULL
    );
    INSERT INTO owner_heartbeat (beats) VALUES (0);
"""
"""Counts on while a router serves: a database that counts less is an older copy (`schema_owner`)."""
_OWN_MIGRATIONS: Final = (
    (
        "0001_notifications",
        _OWN,
        "DROP TABLE pending_notifications, notification_totals, token_registrations",
    ),
    ("0002_direct", _DIRECT, _DIRECT_DOWN),
    (
        "0003_router_identity",
        _IDENTITY,
        "DROP INDEX IF EXISTS tocsin_subscriptions_notifier_id, tocsin_smp_servers_keyhash",
    ),
    ("0004_service_credentials", _SERVICE_CREDENTIALS, "DROP TABLE service_credentials"),
    ("0005_owner_heartbeat", _HEARTBEAT, "DROP TABLE owner_heartbeat"),
    ("0006_fleet", LEASE_TABLES, DROP_LEASE_TABLES),
    ("0007_functions", CREATE_FUNCTIONS, DROP_FUNCTIONS),
    ("0008_unable_instances", UNABLE_TABLE, DROP_UNABLE_TABLE),
)
"""Name, statements, and statements that undo them."""
_LOSSES: Final = {
    "20250517_service_cert": (
        Loss("SMP routers with a service", "smp_servers WHERE ntf_service_id IS NOT NULL"),
        Loss("subscriptions by a service", "subscriptions WHERE ntf_service_assoc"),
    ),
    "0001_notifications": (
        Loss("notifications that are not pushed yet", "pending_notifications"),
        Loss("totals of the accounting", "notification_totals"),
        Loss("times of registrations", "token_registrations"),
    ),
    "0002_direct": (
        Loss("keys of direct notifications", "direct_keys"),
        Loss("queues that SMP routers reported as deleted", "direct_gone"),
        Loss("marks of ended subscriptions", "direct_ended"),
        Loss("subscriptions without a key", _KEYLESS),
    ),
    "0004_service_credentials": (Loss("certificates of services", "service_credentials"),),
}
"""Rows that versions before a migration have no place or no use for."""


def own_schema(schema: str) -> str:
    return f"{schema}_tocsin"


def search_path(schema: str) -> str:
    """Return the search path. Raises StoreError if the name of the schema is not allowed."""
    if not _NAME.fullmatch(schema):
        raise StoreError("the name of the database schema may have lower-case letters, digits and _ only")
    return f'"{schema}", "{own_schema(schema)}"'


async def has_store(connection: AnyConnection, schema: str) -> bool:
    """Whether both schemas are there and up to date. Raises StoreError if a newer server made them."""
    return not await _missing(connection, schema)


async def migrate(connection: AnyConnection, schema: str) -> list[str]:
    """Apply all missing migrations or none. Returns their names."""
    async with connection.transaction():
        # Several routers may start at the same time.
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK_KEY)
        missing = await _missing(connection, schema)
        if missing:
            # Checked first, because CREATE … IF NOT EXISTS needs the right to create even if there is nothing to do.
            await connection.execute(_prepare(schema))
        for name, sql, down in _MIGRATIONS:
            if name in missing:
                await connection.execute(f'SET LOCAL search_path TO "{schema}"')
                await connection.execute(sql)
                await connection.execute(
                    "INSERT INTO migrations (name, ts, down) VALUES ($1, now() AT TIME ZONE 'UTC', $2)",
                    name,
                    down,
                )
        for name, sql, _ in _OWN_MIGRATIONS:
            if name in missing:
                await connection.execute(f'SET LOCAL search_path TO "{own_schema(schema)}", "{schema}"')
                await connection.execute(sql)
                await connection.execute("INSERT INTO tocsin_migrations (name) VALUES ($1)", name)
    return missing


async def roll_back(
    connection: AnyConnection, schema: str, keep: str, *, lose_data: bool, dry_run: bool
) -> tuple[list[str], list[str]]:
    """Undo all migrations after `keep`, ours and then the reference's. Returns their names and what was lost.

    Raises StoreError if a router uses the schema, if that would lose data, unless the operator accepts it, or if a
    newer server changed the schema.
    """
    key = schema_key("ntf", schema)
    if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", key):
        raise StoreError(
            f"a router uses the schema {schema} ({await holder_of(connection, key)}): stop it first"
        )
    try:
        known, missing = [*_MIGRATIONS, *_OWN_MIGRATIONS], await _missing(connection, schema)
        names = to_undo([name for name, _, _ in known if name not in missing], keep)
        if names and names[-1] == _MIGRATIONS[-1][0]:
            await _refuse_later(connection, schema)
        paths = f'"{schema}", "{own_schema(schema)}"'
        steps = [
            Undo(name, down, _LOSSES.get(name, ()), paths, _record_of(schema, name))
            for name, _, down in reversed(known)
            if name in names
        ]
        return names, await undo(connection, steps, keep, lose_data=lose_data, dry_run=dry_run)
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", key)


async def _refuse_later(connection: AnyConnection, schema: str) -> None:
    """Raise StoreError if tables have changes of 7.0, which must be undone first."""
    if later := sorted(await _applied(connection, f'"{schema}".migrations') & set(LATER_MIGRATIONS)):
        raise StoreError(
            f"the schema {schema} is of the reference 7.0 ({', '.join(later)}): run `tocsin migrate tables "
            "--release 6.5` first, then repeat this"
        )


def _record_of(schema: str, name: str) -> str:
    is_own = name in {own for own, _, _ in _OWN_MIGRATIONS}
    return f'"{own_schema(schema)}".tocsin_migrations' if is_own else f'"{schema}".migrations'


async def _applied(connection: AnyConnection, table: str) -> set[str]:
    if await connection.fetchval("SELECT to_regclass($1)", table) is None:
        return set()
    return {row["name"] for row in await connection.fetch(f"SELECT name FROM {table}")}  # noqa: S608


def _prepare(schema: str) -> str:
    return f"""
        CREATE SCHEMA IF NOT EXISTS "{schema}";
        CREATE SCHEMA IF NOT EXISTS "{own_schema(schema)}";
        CREATE TABLE IF NOT EXISTS "{schema}".migrations (
            name text NOT NULL PRIMARY KEY, ts timestamp NOT NULL, down text
        );
        CREATE TABLE IF NOT EXISTS "{own_schema(schema)}".tocsin_migrations (
            name text NOT NULL PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now()
        );
    """


async def reference_version(connection: AnyConnection, schema: str) -> str:
    """Return the version of the reference whose tables these are, as people call it. Raises StoreError."""
    applied = await _applied(connection, f'"{schema}".migrations')
    later = [name for name in LATER_MIGRATIONS if name in applied]
    if not later:
        return "6.5" if _MIGRATIONS[-1][0] in applied else "6.4 or older"
    return "7.0" if len(later) == len(LATER_MIGRATIONS) else f"a test version of 7.0 (up to {later[-1]})"


async def has_certificate_columns(connection: AnyConnection, schema: str) -> bool:
    """Whether the tables have columns for certificates of our services, as those of 7.0."""
    statement = (
        "SELECT count(*) = 3 FROM information_schema.columns WHERE table_schema = $1 AND table_name = 'smp_servers' "
        "AND column_name IN ('ntf_service_cert', 'ntf_service_cert_hash', 'ntf_service_priv_key')"
    )
    return bool(await connection.fetchval(statement, schema))


async def _missing(connection: AnyConnection, schema: str) -> list[str]:
    own = own_schema(schema)
    missing = []
    for table, known in (
        (f'"{schema}".migrations', [name for name, _, _ in _MIGRATIONS]),
        (f'"{own}".tocsin_migrations', [name for name, _, _ in _OWN_MIGRATIONS]),
    ):
        applied = await _applied(connection, table)
        if unknown := applied.difference(known, LATER_MIGRATIONS):
            raise StoreError(
                f"a newer server changed the schema {schema}, update Tocsin: {', '.join(sorted(unknown))}"
            )
        missing += [name for name in known if name not in applied]
    return missing
