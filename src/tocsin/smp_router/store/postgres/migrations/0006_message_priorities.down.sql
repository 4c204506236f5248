ALTER TABLE tocsin_smp.messages ADD COLUMN notify boolean NOT NULL DEFAULT true;
UPDATE tocsin_smp.messages SET notify = false WHERE priority = 0;
ALTER TABLE tocsin_smp.messages ALTER COLUMN notify DROP DEFAULT, DROP COLUMN priority;
