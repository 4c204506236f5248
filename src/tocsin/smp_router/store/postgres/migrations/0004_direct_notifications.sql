-- What direct notifications add (stores/smp_direct.py). An NTF router is the service with the same id. Its location is the
-- text of an address, as bytes: text of PostgreSQL has no zeros, and hosts are what others say.
CREATE TABLE tocsin_smp.ntf_routers (
    service_id bytea PRIMARY KEY,
    location   bytea NOT NULL,
    auth_key   bytea,
    issued_at  bigint NOT NULL
);

-- Only of notifiers that do not want all notifications.
CREATE TABLE tocsin_smp.minimum_priorities (
    notifier_id bytea PRIMARY KEY,
    minimum     smallint NOT NULL
);

CREATE TABLE tocsin_smp.packets (
    packet_id   bytea PRIMARY KEY,
    created_at  bigint NOT NULL,
    location    bytea NOT NULL,
    notifier_id bytea,
    packet      bytea NOT NULL
);
