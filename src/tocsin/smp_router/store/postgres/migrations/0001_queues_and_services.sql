-- One row is one queue (QueueRecord). Lists of keys and certificates are length-prefixed in one value, because unnest
-- flattens arrays of arrays.
CREATE TABLE tocsin_smp.queues (
    recipient_id        bytea PRIMARY KEY,
    recipient_keys      bytea NOT NULL,
    dh_secret           bytea NOT NULL,
    sender_id           bytea NOT NULL,
    sender_key          bytea,
    mode                bytea,
    link_id             bytea,
    link_fixed          bytea,
    link_user           bytea,
    notifier_id         bytea,
    notifier_key        bytea,
    notifier_secret     bytea,
    notifier_service_id bytea,
    status              text NOT NULL,
    block_notice        boolean NOT NULL,
    block_ttl           bigint,
    updated_at          bigint,
    service_id          bytea,
    -- Deferred: an id may move from one queue to another within a batch.
    CONSTRAINT queues_sender_id UNIQUE (sender_id) DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT queues_link_id UNIQUE (link_id) DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT queues_notifier_id UNIQUE (notifier_id) DEFERRABLE INITIALLY DEFERRED
);

CREATE TABLE tocsin_smp.services (
    service_id   bytea PRIMARY KEY,
    role         bytea NOT NULL,
    certificates bytea NOT NULL,
    fingerprint  bytea NOT NULL,
    created_at   bigint NOT NULL
);
