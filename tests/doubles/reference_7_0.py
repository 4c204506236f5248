"""What version 7.0 of the reference makes of an NTF router's tables, as v7.md 6.4 describes it."""

from __future__ import annotations

import asyncpg

DIGEST = """
    CREATE FUNCTION public.digest(data bytea, kind text) RETURNS bytea LANGUAGE sql IMMUTABLE AS
    $$ SELECT CASE WHEN kind = 'md5' THEN decode(md5(data), 'hex') END $$
"""
"""In place of the extension pgcrypto, which the server of our tests does not have."""
XOR_BYTES = """
    CREATE FUNCTION xor_bytes(one bytea, other bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$
    BEGIN
        FOR place IN 0 .. length(one) - 1 LOOP
            one := set_byte(one, place, get_byte(one, place) # get_byte(other, place));
        END LOOP;
        RETURN one;
    END $$;
"""
"""A function that both servers make, each in its own schema: XOR of two byte strings of one length."""
HASHES = """
    ALTER TABLE smp_servers ADD COLUMN smp_notifier_count bigint NOT NULL DEFAULT 0;
    ALTER TABLE smp_servers ADD COLUMN smp_notifier_ids_hash bytea NOT NULL
        DEFAULT '\\x00000000000000000000000000000000';
    CREATE FUNCTION is_counted(s subscriptions) RETURNS boolean LANGUAGE sql IMMUTABLE AS
    $$ SELECT s.ntf_service_assoc AND s.status IN ('NEW', 'PENDING', 'ACTIVE', 'INACTIVE') $$;
    CREATE FUNCTION count_notifier(s subscriptions, by bigint) RETURNS void LANGUAGE sql AS $$
        UPDATE smp_servers SET smp_notifier_count = smp_notifier_count + by,
            smp_notifier_ids_hash = xor_bytes(smp_notifier_ids_hash, public.digest(s.smp_notifier_id, 'md5'))
        WHERE smp_server_id = s.smp_server_id
    $$;
    CREATE FUNCTION on_subscription() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP <> 'INSERT' AND is_counted(OLD) THEN PERFORM count_notifier(OLD, -1); END IF;
        IF TG_OP <> 'DELETE' AND is_counted(NEW) THEN PERFORM count_notifier(NEW, 1); END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER notifiers AFTER INSERT OR UPDATE OR DELETE ON subscriptions
        FOR EACH ROW EXECUTE FUNCTION on_subscription();
"""
CERTIFICATES = """
    ALTER TABLE smp_servers ADD COLUMN ntf_service_cert bytea;
    ALTER TABLE smp_servers ADD COLUMN ntf_service_cert_hash bytea;
    ALTER TABLE smp_servers ADD COLUMN ntf_service_priv_key bytea;
    UPDATE subscriptions SET ntf_service_assoc = false;
    UPDATE smp_servers SET ntf_service_id = NULL, smp_notifier_count = 0,
        smp_notifier_ids_hash = '\\x00000000000000000000000000000000';
"""
HASHES_BACK = """
    DROP TRIGGER notifiers ON subscriptions;
    DROP FUNCTION on_subscription();
    DROP FUNCTION count_notifier(subscriptions, bigint);
    DROP FUNCTION is_counted(subscriptions);
    DROP FUNCTION xor_bytes(bytea, bytea);
    ALTER TABLE smp_servers DROP COLUMN smp_notifier_count, DROP COLUMN smp_notifier_ids_hash;
"""
CERTIFICATES_BACK = """
    UPDATE subscriptions SET ntf_service_assoc = false;
    UPDATE smp_servers SET ntf_service_id = NULL, smp_notifier_count = 0,
        smp_notifier_ids_hash = '\\x00000000000000000000000000000000';
    ALTER TABLE smp_servers DROP COLUMN ntf_service_cert, DROP COLUMN ntf_service_cert_hash,
        DROP COLUMN ntf_service_priv_key;
"""
MIGRATIONS = (
    ("20250830_queue_ids_hash", XOR_BYTES + HASHES, HASHES_BACK),
    ("20251219_service_cert_per_server", CERTIFICATES, CERTIFICATES_BACK),
)
"""Name, statements, and statements that undo them."""


async def upgrade_to_7_0(url: str, schema: str = "ntf_server") -> None:
    """Do what the reference 7.0 does at its start with the tables of 6.5."""
    connection = await asyncpg.connect(url, server_settings={"search_path": schema})
    try:
        if not await connection.fetchval("SELECT to_regprocedure('public.digest(bytea, text)')"):
            await connection.execute(DIGEST)
        for name, statements, back in MIGRATIONS:
            await connection.execute(statements)
            record = "INSERT INTO migrations (name, ts, down) VALUES ($1, now(), $2)"
            await connection.execute(record, name, back)
    finally:
        await connection.close()
