-- 0: no notification, 1: ordinary, 2 and 3: for mentions and the most important messages.
ALTER TABLE tocsin_smp.messages ADD COLUMN priority smallint NOT NULL DEFAULT 1;
UPDATE tocsin_smp.messages SET priority = 0 WHERE NOT notify;
ALTER TABLE tocsin_smp.messages ALTER COLUMN priority DROP DEFAULT, DROP COLUMN notify;
