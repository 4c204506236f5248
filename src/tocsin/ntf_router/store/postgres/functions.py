"""Functions in the database: what would take several statements of one transaction takes one round trip.

Their statements are those that a transaction of ours would send one by one, and each sees what was committed before it
began. They find tables by the search path of the caller. A function is never changed: instances of the release before
may call it, so a new form of it gets a new number and a new migration.
"""

from __future__ import annotations

from typing import Final

from tocsin.ntf_router.store.postgres.rows import REFERENCE_WEB_PUSH, sql_list
from tocsin.protocol.ntf.lifecycles import UNVERIFIED, VERIFIABLE

# Removes a token's oldest notifications that are not pending, beyond the number it may keep. The nonce is compared
# again because the row may have got a newer notification while this statement waited for its lock.
PRUNE: Final = """
    DELETE FROM last_notifications USING (
        SELECT l.token_ntf_id, l.nmsg_nonce,
            row_number() OVER (
                PARTITION BY l.token_id ORDER BY p.nonce IS NOT NULL, l.sent_at, l.token_ntf_id
            ) AS place,
            count(*) OVER (PARTITION BY l.token_id) AS held,
            p.nonce IS NOT NULL AS is_pending
        FROM last_notifications l
        LEFT JOIN pending_notifications p ON p.subscription_id = l.subscription_id AND p.nonce = l.nmsg_nonce
        WHERE l.token_id = ANY($1::bytea[])
    ) AS ranked
    WHERE last_notifications.token_ntf_id = ranked.token_ntf_id
        AND last_notifications.nmsg_nonce = ranked.nmsg_nonce
        AND NOT ranked.is_pending AND ranked.place <= ranked.held - $2
"""


def _pruning(token_ids: str, kept: str) -> str:
    return PRUNE.replace("$1::bytea[]", token_ids).replace("$2", kept)


# The queues are different ones. A pending row is locked before it is replaced, so that none is settled between being
# counted as superseded and that. The first result is -1 if the lease is not ours.
_RECEIVE: Final = f"""
    CREATE FUNCTION receive_notifications_1(
        of_lease text, with_fence bigint, by_holder bigint, at_router bytea, came_queues bytea[],
        came_nonces bytea[], came_metas bytea[], came_times double precision[], providers text[], kept bigint
    ) RETURNS TABLE (came_place bigint, came_token bytea, came_provider text, came_again boolean,
        gone_nonce bytea, gone_time double precision)
    LANGUAGE plpgsql AS $$
    DECLARE
        owners bytea[];
        found_places bigint[];
        found_subscriptions bytea[];
        found_tokens bytea[];
        found_providers text[];
    BEGIN
        IF of_lease IS NOT NULL THEN
            PERFORM 1 FROM fleet_leases l
                WHERE l.name = of_lease AND l.fence = with_fence AND l.holder = by_holder FOR SHARE;
            IF NOT FOUND THEN
                RETURN QUERY SELECT -1::bigint, NULL::bytea, NULL::text, NULL::boolean, NULL::bytea, NULL::float8;
                RETURN;
            END IF;
        END IF;
        SELECT array_agg(locked.token_id) INTO owners FROM (
            SELECT t.token_id FROM tokens t
            WHERE t.status IN {sql_list(VERIFIABLE)}
                AND (t.push_provider = ANY(providers) OR starts_with(t.push_provider, '{REFERENCE_WEB_PUSH}'))
                AND t.token_id IN (
                    SELECT s.token_id FROM subscriptions s JOIN smp_servers v ON v.smp_server_id = s.smp_server_id
                    WHERE v.smp_keyhash = at_router AND s.smp_notifier_id = ANY(came_queues)
                )
            ORDER BY t.token_id FOR SHARE
        ) AS locked;
        SELECT array_agg(queue.place), array_agg(queue.subscription_id), array_agg(queue.token_id),
            array_agg(queue.push_provider)
        INTO found_places, found_subscriptions, found_tokens, found_providers
        FROM (
            SELECT DISTINCT ON (locked.smp_notifier_id) came.place, locked.*
            FROM (
                SELECT s.subscription_id, s.token_id, s.smp_notifier_id, s.status, t.push_provider
                FROM subscriptions s JOIN smp_servers v ON v.smp_server_id = s.smp_server_id
                JOIN tokens t ON t.token_id = s.token_id
                WHERE v.smp_keyhash = at_router AND s.smp_notifier_id = ANY(came_queues)
                    AND s.token_id = ANY(owners)
                ORDER BY s.subscription_id FOR UPDATE OF s
            ) AS locked
            JOIN unnest(came_queues) WITH ORDINALITY AS came (queue, place) ON came.queue = locked.smp_notifier_id
            ORDER BY locked.smp_notifier_id, locked.status <> 'ACTIVE', locked.subscription_id
        ) AS queue;
        IF found_places IS NULL THEN
            RETURN;
        END IF;
        RETURN QUERY
        WITH waiting AS MATERIALIZED (
            SELECT p.subscription_id, p.nonce, p.received_at FROM pending_notifications p
            WHERE p.subscription_id = ANY(found_subscriptions)
            ORDER BY p.subscription_id FOR UPDATE
        ), decided AS MATERIALIZED (
            SELECT queue.*, came.nonce, came.data, came.received_at,
                last.nmsg_nonce IS NOT NULL AND last.nmsg_nonce = came.nonce AS again,
                waiting.nonce AS old_nonce, waiting.received_at AS old_time
            FROM unnest(found_places, found_subscriptions, found_tokens, found_providers)
                AS queue (place, subscription_id, token_id, push_provider)
            JOIN unnest(came_nonces, came_metas, came_times) WITH ORDINALITY
                AS came (nonce, data, received_at, place) ON came.place = queue.place
            LEFT JOIN last_notifications last
                ON last.token_id = queue.token_id AND last.subscription_id = queue.subscription_id
            LEFT JOIN waiting ON waiting.subscription_id = queue.subscription_id
        ), pending AS (
            INSERT INTO pending_notifications (subscription_id, token_id, nonce, received_at)
            SELECT d.subscription_id, d.token_id, d.nonce, d.received_at FROM decided d WHERE NOT d.again
            ON CONFLICT (subscription_id) DO UPDATE
            SET token_id = EXCLUDED.token_id, nonce = EXCLUDED.nonce, received_at = EXCLUDED.received_at
        ), last AS (
            INSERT INTO last_notifications (token_id, subscription_id, sent_at, nmsg_nonce, nmsg_data)
            SELECT d.token_id, d.subscription_id, to_timestamp(d.received_at), d.nonce, d.data
            FROM decided d WHERE NOT d.again
            ON CONFLICT (token_id, subscription_id) DO UPDATE
            SET sent_at = EXCLUDED.sent_at, nmsg_nonce = EXCLUDED.nmsg_nonce, nmsg_data = EXCLUDED.nmsg_data
        ), counted AS (
            INSERT INTO notification_totals AS total (outcome, part, count)
            SELECT came.outcome, pg_backend_pid() % 64, came.number FROM (
                SELECT 'received', count(*) FROM decided d WHERE NOT d.again
                UNION ALL SELECT 'superseded', count(d.old_nonce) FROM decided d WHERE NOT d.again
            ) AS came (outcome, number) WHERE came.number > 0 ORDER BY came.outcome
            ON CONFLICT (outcome, part) DO UPDATE SET count = total.count + EXCLUDED.count
        )
        SELECT d.place, d.token_id, d.push_provider, d.again, d.old_nonce, d.old_time FROM decided d;
        {_pruning("found_tokens", "kept")};
    END
    $$
"""  # noqa: S608
# Outcomes whose lease is not ours are left to the instance that pushes that token now.
_SETTLE: Final = f"""
    CREATE FUNCTION settle_notifications_1(
        our_leases text[], our_fences bigint[], by_holder bigint, ended_leases text[], ended_subscriptions bytea[],
        ended_tokens bytea[], ended_nonces bytea[], ended_outcomes text[], kept bigint
    ) RETURNS SETOF bigint
    LANGUAGE plpgsql AS $$
    DECLARE
        held text[];
        gone_places bigint[];
        gone_tokens bytea[];
    BEGIN
        IF our_leases IS NOT NULL THEN
            SELECT array_agg(locked.name) INTO held FROM (
                SELECT l.name FROM fleet_leases l
                JOIN unnest(our_leases, our_fences) AS ours (name, fence)
                    ON l.name = ours.name AND l.fence = ours.fence
                WHERE l.holder = by_holder
                ORDER BY l.name FOR SHARE OF l
            ) AS locked;
        END IF;
        WITH gone AS (
            DELETE FROM pending_notifications p
            USING unnest(ended_leases, ended_subscriptions, ended_tokens, ended_nonces, ended_outcomes)
                WITH ORDINALITY AS ended (lease, subscription_id, token_id, nonce, outcome, place)
            WHERE p.subscription_id = ended.subscription_id AND p.token_id = ended.token_id
                AND p.nonce = ended.nonce AND (our_leases IS NULL OR ended.lease = ANY(held))
            RETURNING ended.place, ended.token_id, ended.outcome
        ), counted AS (
            INSERT INTO notification_totals AS total (outcome, part, count)
            SELECT gone.outcome, pg_backend_pid() % 64, count(*) FROM gone GROUP BY gone.outcome ORDER BY gone.outcome
            ON CONFLICT (outcome, part) DO UPDATE SET count = total.count + EXCLUDED.count
        )
        SELECT array_agg(gone.place), array_agg(DISTINCT gone.token_id) INTO gone_places, gone_tokens FROM gone;
        IF gone_places IS NOT NULL THEN
            {_pruning("gone_tokens", "kept")};
            RETURN QUERY SELECT unnest(gone_places);
        END IF;
    END
    $$
"""  # noqa: S608
ADDED: Final = "added"
TAKEN: Final = "taken"
FULL: Final = "full"
TOKEN_FULL: Final = "token full"  # noqa: S105
"""The results for a subscription."""
_ADD_SUBSCRIPTIONS: Final = f"""
    CREATE FUNCTION add_subscriptions_1(
        new_hosts text[], new_ports text[], new_keyhashes bytea[], new_ids bytea[], new_tokens bytea[],
        new_queues bytea[], new_keys bytea[], new_statuses text[], new_associated boolean[],
        have_room boolean[], most_of_token bigint
    ) RETURNS SETOF text
    LANGUAGE plpgsql AS $$
    DECLARE
        added bigint;
        server bigint;
        had bigint;
    BEGIN
        FOR place IN 1 .. cardinality(new_ids) LOOP
            PERFORM 1 FROM tokens t WHERE t.token_id = new_tokens[place] FOR NO KEY UPDATE;
            IF NOT FOUND THEN
                RETURN NEXT '{TAKEN}';
                CONTINUE;
            END IF;
            PERFORM 1 FROM subscriptions s JOIN smp_servers v ON v.smp_server_id = s.smp_server_id
                WHERE s.smp_notifier_id = new_queues[place] AND v.smp_keyhash = new_keyhashes[place];
            IF FOUND THEN
                RETURN NEXT '{TAKEN}';
                CONTINUE;
            END IF;
            SELECT count(*) INTO had FROM (
                SELECT FROM subscriptions s WHERE s.token_id = new_tokens[place] LIMIT most_of_token
            ) AS found;
            IF had >= most_of_token THEN
                RETURN NEXT '{TOKEN_FULL}';
                CONTINUE;
            END IF;
            IF NOT have_room[place] THEN
                RETURN NEXT '{FULL}';
                CONTINUE;
            END IF;
            SELECT v.smp_server_id INTO server FROM smp_servers v WHERE v.smp_host = new_hosts[place]
                AND v.smp_port = new_ports[place] AND v.smp_keyhash = new_keyhashes[place];
            IF NOT FOUND THEN
                INSERT INTO smp_servers (smp_host, smp_port, smp_keyhash, ntf_service_id)
                SELECT new_hosts[place], new_ports[place], new_keyhashes[place], (
                    SELECT v.ntf_service_id FROM smp_servers v
                    WHERE v.smp_keyhash = new_keyhashes[place] AND v.ntf_service_id IS NOT NULL LIMIT 1
                )
                ON CONFLICT (smp_host, smp_port, smp_keyhash) DO UPDATE SET smp_host = EXCLUDED.smp_host
                RETURNING smp_server_id INTO server;
            END IF;
            INSERT INTO subscriptions (smp_server_id, subscription_id, token_id, smp_notifier_id, smp_notifier_key,
                status, ntf_service_assoc)
            VALUES (server, new_ids[place], new_tokens[place], new_queues[place], new_keys[place],
                new_statuses[place], new_associated[place])
            ON CONFLICT DO NOTHING;
            GET DIAGNOSTICS added = ROW_COUNT;
            RETURN NEXT CASE WHEN added > 0 THEN '{ADDED}' ELSE '{TAKEN}' END;
        END LOOP;
    END
    $$
"""  # noqa: S608
KNOWN: Final = "known"
QUOTA: Final = "quota"
"""The results for a registration, besides `added`, `taken` and `full`."""
# Registrations that nobody verified in time, and without subscriptions, are removed: nobody used their code.
_REGISTER: Final = f"""
    CREATE FUNCTION register_token_1(
        of_provider text, of_device bytea, of_key bytea, verified_since bigint, most_unverified bigint,
        has_room boolean, new_id bytea, new_status text, new_dh_key bytea, new_secret bytea, new_code bytea,
        new_cron bigint, new_cron_sent bigint, new_updated bigint, new_registered bigint,
        OUT became text, OUT removed bigint
    ) LANGUAGE plpgsql AS $$
    DECLARE
        fresh bigint;
        old bytea[];
        added bigint;
    BEGIN
        removed := 0;
        PERFORM 1 FROM tokens t
            WHERE t.push_provider = of_provider AND t.push_provider_token = of_device AND t.verify_key = of_key;
        IF FOUND THEN
            became := '{KNOWN}';
            RETURN;
        END IF;
        SELECT count(*) FILTER (WHERE found.registered_at >= verified_since),
            array_agg(found.token_id) FILTER (WHERE found.registered_at < verified_since)
        INTO fresh, old FROM (
            SELECT t.token_id, coalesce(r.registered_at, 0) AS registered_at
            FROM tokens t LEFT JOIN token_registrations r ON r.token_id = t.token_id
            WHERE t.push_provider = of_provider AND t.push_provider_token = of_device
                AND t.status IN {sql_list(UNVERIFIED)}
        ) AS found;
        IF old IS NOT NULL THEN
            DELETE FROM tokens t WHERE t.token_id = ANY(old) AND t.status IN {sql_list(UNVERIFIED)}
                AND NOT EXISTS (SELECT FROM subscriptions s WHERE s.token_id = t.token_id);
            GET DIAGNOSTICS removed = ROW_COUNT;
        END IF;
        IF fresh >= most_unverified THEN
            became := '{QUOTA}';
            RETURN;
        END IF;
        IF NOT has_room THEN
            became := '{FULL}';
            RETURN;
        END IF;
        INSERT INTO tokens (token_id, push_provider, push_provider_token, status, verify_key, dh_priv_key, dh_secret,
            reg_code, cron_interval, cron_sent_at, updated_at)
        VALUES (new_id, of_provider, of_device, new_status, of_key, new_dh_key, new_secret,
            new_code, new_cron, new_cron_sent, new_updated)
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS added = ROW_COUNT;
        IF added = 0 THEN
            became := '{TAKEN}';
            RETURN;
        END IF;
        INSERT INTO token_registrations (token_id, registered_at) VALUES (new_id, new_registered);
        became := '{ADDED}';
    END
    $$
"""  # noqa: S608
CREATE_FUNCTIONS: Final = ";".join((_RECEIVE, _SETTLE, _ADD_SUBSCRIPTIONS, _REGISTER))
DROP_FUNCTIONS: Final = """
    DROP FUNCTION receive_notifications_1, settle_notifications_1, add_subscriptions_1, register_token_1
"""
