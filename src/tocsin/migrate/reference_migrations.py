"""The changes of release 7.0 of the reference to its tables of 6.5, and how to undo them (v7.md 5.1, 6.4).

The statements are ours: they have the effects that the specification describes. MD5 is PostgreSQL's own function, so
they work without the extension pgcrypto, which 7.0's own statements need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tocsin.durable.postgres.schema_rollback import Loss
from tocsin.ntf_router.store.postgres.schema import LATER_MIGRATIONS


@dataclass(frozen=True, slots=True)
class ReferenceMigration:
    """A migration of 7.0, under the name with which the reference records it."""

    name: str
    what: str
    up: str
    down: str
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True)
class ReferenceTables:
    """The tables of one of the reference's servers."""

    program: str
    schema: str
    """Where the reference keeps them, unless the operator chose another name."""
    table: str
    """A table that only this server has."""
    required: tuple[tuple[str, str], ...]
    """Columns that the tables have from 6.5 on."""
    migrations: tuple[ReferenceMigration, ...]
    rows: tuple[tuple[str, str], ...]
    """Rows to count: their name, and the end of a `SELECT count(*) FROM`."""


_NO_HASH: Final = "'\\x00000000000000000000000000000000'"
_HASHES: Final = f"""
    CREATE FUNCTION tocsin_xor_bytes(one bytea, other bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT AS $$
    BEGIN
        FOR place IN 0 .. 15 LOOP
            one := set_byte(one, place, get_byte(one, place) # get_byte(other, place));
        END LOOP;
        RETURN one;
    END $$;
    CREATE FUNCTION tocsin_id_hash(id bytea) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT AS
        $$ SELECT decode(md5(id), 'hex') $$;
    CREATE AGGREGATE tocsin_ids_hash(bytea) (
        SFUNC = tocsin_xor_bytes, STYPE = bytea, INITCOND = {_NO_HASH}
    );
"""
_HASHES_DOWN: Final = """
    DROP AGGREGATE tocsin_ids_hash(bytea);
    DROP FUNCTION tocsin_id_hash(bytea);
    DROP FUNCTION tocsin_xor_bytes(bytea, bytea);
"""


def _triggers(table: str, function: str) -> str:
    """One call for each statement, so that many changed rows cost one change of each sum.

    A trigger with tables of changes has one event, so there are three.
    """
    return f"""
        CREATE TRIGGER {function}_insert AFTER INSERT ON {table} REFERENCING NEW TABLE AS new_rows
            FOR EACH STATEMENT EXECUTE FUNCTION {function}();
        CREATE TRIGGER {function}_update AFTER UPDATE ON {table}
            REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION {function}();
        CREATE TRIGGER {function}_delete AFTER DELETE ON {table} REFERENCING OLD TABLE AS old_rows
            FOR EACH STATEMENT EXECUTE FUNCTION {function}();
    """


def _triggers_down(table: str, function: str) -> str:
    return f"""
        DROP TRIGGER {function}_insert ON {table};
        DROP TRIGGER {function}_update ON {table};
        DROP TRIGGER {function}_delete ON {table};
        DROP FUNCTION {function}();
    """


def _counting(function: str, sums: str, old: str, new: str) -> str:
    """The function of the triggers.

    `sums` names the table of the sums, its key, the column of the count and that of the hash. `old` and `new` select
    key, sign and hash of changed rows. Sums are changed in the order of their keys, so that two transactions do not
    wait for each other.
    """
    table, key, count, ids_hash = sums.split()
    return f"""
        CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
        DECLARE
            changes refcursor;
            change record;
        BEGIN
            IF TG_OP = 'INSERT' THEN
                OPEN changes FOR {_changes(new)};
            ELSIF TG_OP = 'DELETE' THEN
                OPEN changes FOR {_changes(old)};
            ELSE
                OPEN changes FOR {_changes(f"{old} UNION ALL {new}")};
            END IF;
            LOOP
                FETCH changes INTO change;
                EXIT WHEN NOT FOUND;
                UPDATE {table} SET {count} = {count} + change.number,
                    {ids_hash} = tocsin_xor_bytes({ids_hash}, change.ids_hash)
                WHERE {key} = change.key;
            END LOOP;
            CLOSE changes;
            RETURN NULL;
        END $$;
    """  # noqa: S608 - names of tables


def _changes(rows: str) -> str:
    return f"""
        SELECT key, sum(sign) AS number, tocsin_ids_hash(id_hash) AS ids_hash FROM ({rows}) AS changed
        GROUP BY key HAVING sum(sign) <> 0 OR tocsin_ids_hash(id_hash) <> {_NO_HASH} ORDER BY key
    """  # noqa: S608 - names of tables


def _of_subscriptions(rows: str, sign: int) -> str:
    return f"""
        SELECT smp_server_id AS key, {sign} AS sign, tocsin_id_hash(smp_notifier_id) AS id_hash FROM {rows}
        WHERE ntf_service_assoc AND status IN ('NEW', 'PENDING', 'ACTIVE', 'INACTIVE')
    """  # noqa: S608 - names of tables


_NTF_COUNTING: Final = _counting(
    "tocsin_count_notifiers",
    "smp_servers smp_server_id smp_notifier_count smp_notifier_ids_hash",
    _of_subscriptions("old_rows", -1),
    _of_subscriptions("new_rows", 1),
)
_NTF_FILL: Final = f"""
    UPDATE smp_servers AS v SET smp_notifier_count = c.number, smp_notifier_ids_hash = c.ids_hash
    FROM (
        SELECT key, count(*) AS number, tocsin_ids_hash(id_hash) AS ids_hash
        FROM ({_of_subscriptions("subscriptions", 1)}) AS counted GROUP BY key
    ) AS c WHERE v.smp_server_id = c.key;
"""  # noqa: S608 - names of tables
_FORGET_ASSOCIATIONS: Final = f"""
    UPDATE subscriptions SET ntf_service_assoc = false WHERE ntf_service_assoc;
    UPDATE smp_servers SET ntf_service_id = NULL, smp_notifier_count = 0, smp_notifier_ids_hash = {_NO_HASH};
"""  # noqa: S608 - a constant
_NTF: Final = (
    ReferenceMigration(
        "20250830_queue_ids_hash",
        LATER_MIGRATIONS["20250830_queue_ids_hash"],
        f"""
            ALTER TABLE smp_servers ADD COLUMN smp_notifier_count bigint NOT NULL DEFAULT 0,
                ADD COLUMN smp_notifier_ids_hash bytea NOT NULL DEFAULT {_NO_HASH};
            {_HASHES}
            {_NTF_FILL}
            {_NTF_COUNTING}
            {_triggers("subscriptions", "tocsin_count_notifiers")}
        """,
        f"""
            {_triggers_down("subscriptions", "tocsin_count_notifiers")}
            {_HASHES_DOWN}
            ALTER TABLE smp_servers DROP COLUMN smp_notifier_count, DROP COLUMN smp_notifier_ids_hash;
        """,
    ),
    ReferenceMigration(
        "20251219_service_cert_per_server",
        LATER_MIGRATIONS["20251219_service_cert_per_server"],
        f"""
            ALTER TABLE smp_servers ADD COLUMN ntf_service_cert bytea, ADD COLUMN ntf_service_cert_hash bytea,
                ADD COLUMN ntf_service_priv_key bytea;
            {_FORGET_ASSOCIATIONS}
        """,
        f"""
            {_FORGET_ASSOCIATIONS}
            ALTER TABLE smp_servers DROP COLUMN ntf_service_cert, DROP COLUMN ntf_service_cert_hash,
                DROP COLUMN ntf_service_priv_key;
        """,
        (Loss("certificates of services", "smp_servers WHERE ntf_service_cert IS NOT NULL"),),
    ),
)


def _of_queues(rows: str, sign: int) -> str:
    """A queue counts for a service that receives its messages, and for one that gets its notifications."""
    return " UNION ALL ".join(
        f"""
        SELECT {service} AS key, {sign} AS sign, tocsin_id_hash({queue}) AS id_hash FROM {rows}
        WHERE {service} IS NOT NULL AND {queue} IS NOT NULL AND deleted_at IS NULL
            AND EXISTS (SELECT FROM services WHERE service_id = {service} AND service_role = '{role}')
        """  # noqa: S608 - names of tables
        for service, role, queue in (
            ("rcv_service_id", "M", "recipient_id"),
            ("ntf_service_id", "N", "notifier_id"),
        )
    )


_SMP_COUNTING: Final = _counting(
    "tocsin_count_queues",
    "services service_id queue_count queue_ids_hash",
    _of_queues("old_rows", -1),
    _of_queues("new_rows", 1),
)
_SMP: Final = (
    ReferenceMigration(
        "20250915_queue_ids_hash",
        "counts and hashes of the queues of services, kept by triggers",
        f"""
            ALTER TABLE services ADD COLUMN queue_count bigint NOT NULL DEFAULT 0,
                ADD COLUMN queue_ids_hash bytea NOT NULL DEFAULT {_NO_HASH};
            {_HASHES}
            UPDATE services AS s SET queue_count = c.number, queue_ids_hash = c.ids_hash
            FROM (
                SELECT key, count(*) AS number, tocsin_ids_hash(id_hash) AS ids_hash
                FROM ({_of_queues("msg_queues", 1)}) AS counted GROUP BY key
            ) AS c WHERE s.service_id = c.key;
            {_SMP_COUNTING}
            {_triggers("msg_queues", "tocsin_count_queues")}
        """,  # noqa: S608 - names of tables
        f"""
            {_triggers_down("msg_queues", "tocsin_count_queues")}
            {_HASHES_DOWN}
            ALTER TABLE services DROP COLUMN queue_count, DROP COLUMN queue_ids_hash;
        """,
    ),
)
SMP_TABLES: Final = ReferenceTables(
    "smp-server",
    "smp_server",
    "msg_queues",
    (("services", "service_id"), ("msg_queues", "rcv_service_id"), ("msg_queues", "ntf_service_id")),
    _SMP,
    (("queues", "msg_queues WHERE deleted_at IS NULL"), ("services", "services")),
)
NTF_TABLES: Final = ReferenceTables(
    "ntf-server",
    "ntf_server",
    "last_notifications",
    (("smp_servers", "ntf_service_id"), ("subscriptions", "ntf_service_assoc")),
    _NTF,
    (
        ("tokens", "tokens"),
        ("subscriptions", "subscriptions"),
        ("certificates of services", "smp_servers WHERE ntf_service_cert IS NOT NULL"),
    ),
)
