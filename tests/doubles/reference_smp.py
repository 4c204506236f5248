"""Tables as the reference's SMP server makes them, of releases 6.5 and 7.0 (v7.md 5.1)."""

from __future__ import annotations

import asyncpg

from tests.doubles.reference_7_0 import DIGEST, XOR_BYTES

TABLES_OF_6_5 = """
    CREATE SCHEMA IF NOT EXISTS smp_server;
    CREATE TABLE services (
        service_id bytea PRIMARY KEY, service_role text NOT NULL, service_cert bytea NOT NULL,
        service_cert_hash bytea NOT NULL UNIQUE, created_at bigint NOT NULL
    );
    CREATE TABLE msg_queues (
        recipient_id bytea PRIMARY KEY, recipient_keys bytea NOT NULL, rcv_dh_secret bytea NOT NULL,
        sender_id bytea NOT NULL UNIQUE, sender_key bytea, notifier_id bytea UNIQUE, notifier_key bytea,
        rcv_ntf_dh_secret bytea, status text NOT NULL, updated_at bigint, deleted_at bigint, queue_mode text,
        link_id bytea UNIQUE, fixed_data bytea, user_data bytea,
        rcv_service_id bytea REFERENCES services, ntf_service_id bytea REFERENCES services,
        msg_can_write boolean NOT NULL DEFAULT true, msg_queue_expire boolean NOT NULL DEFAULT false,
        msg_queue_size bigint NOT NULL DEFAULT 0
    );
    CREATE TABLE messages (
        message_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, recipient_id bytea NOT NULL REFERENCES msg_queues,
        msg_id bytea NOT NULL, msg_ts bigint NOT NULL, msg_quota boolean NOT NULL, msg_ntf_flag boolean NOT NULL,
        msg_body bytea NOT NULL
    );
    CREATE TABLE migrations (name text NOT NULL PRIMARY KEY, ts timestamp NOT NULL, down text);
    INSERT INTO migrations VALUES ('20250207_initial', now(), NULL), ('20250514_service_certs', now(), '');
"""
MIGRATION_OF_7_0 = """
    ALTER TABLE services
        ADD COLUMN queue_count bigint NOT NULL DEFAULT 0,
        ADD COLUMN queue_ids_hash bytea NOT NULL DEFAULT '\\x00000000000000000000000000000000';
    CREATE FUNCTION count_queue(service bytea, role text, id bytea) RETURNS void LANGUAGE sql AS $$
        UPDATE services SET queue_count = queue_count + 1,
            queue_ids_hash = xor_bytes(queue_ids_hash, public.digest(id, 'md5'))
        WHERE service_id = service AND service_role = role AND id IS NOT NULL
    $$;
    CREATE FUNCTION on_queue() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM count_queue(NEW.rcv_service_id, 'M', NEW.recipient_id);
        PERFORM count_queue(NEW.ntf_service_id, 'N', NEW.notifier_id);
        RETURN NEW;
    END $$;
    CREATE TRIGGER queues AFTER INSERT ON msg_queues FOR EACH ROW EXECUTE FUNCTION on_queue();
"""
WAY_BACK_FROM_7_0 = """
    DROP TRIGGER queues ON msg_queues;
    DROP FUNCTION on_queue();
    DROP FUNCTION count_queue(bytea, text, bytea);
    DROP FUNCTION xor_bytes(bytea, bytea);
    ALTER TABLE services DROP COLUMN queue_count, DROP COLUMN queue_ids_hash;
"""


async def make_reference_tables(url: str, release: str, *, digest: bool = True) -> None:
    """As `smp-server` leaves an empty database at its first start. `release` is 6.5 or 7.0."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "smp_server"})
    try:
        await connection.execute(DIGEST)
        await connection.execute(TABLES_OF_6_5)
        if release == "7.0":
            await connection.execute(XOR_BYTES + MIGRATION_OF_7_0)
            record = "INSERT INTO migrations VALUES ('20250915_queue_ids_hash', now(), $1)"
            await connection.execute(record, WAY_BACK_FROM_7_0)
        if not digest:
            await connection.execute("DROP FUNCTION public.digest")
    finally:
        await connection.close()
