-- The key is also the order of reading. A message without body is the marker of a full queue.
CREATE TABLE tocsin_smp.messages (
    recipient_id bytea NOT NULL,
    position     bigint NOT NULL,
    message_id   bytea NOT NULL,
    sent_at      bigint NOT NULL,
    notify       boolean NOT NULL,
    body         bytea,
    PRIMARY KEY (recipient_id, position)
);

-- Bodies are ciphertext: trying to compress them costs time and saves nothing.
ALTER TABLE tocsin_smp.messages ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE tocsin_smp.notifications (
    notifier_id bytea NOT NULL,
    nonce       bytea NOT NULL,
    position    bigint NOT NULL,
    message_id  bytea NOT NULL,
    sent_at     bigint NOT NULL,
    sealed_meta bytea NOT NULL,
    PRIMARY KEY (notifier_id, nonce)
);
