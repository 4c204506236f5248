-- How many transactions were written since the opening. A database with fewer than the router had answered for is an older
-- copy: a standby that was behind when it was promoted, or a former primary that is back.
ALTER TABLE tocsin_smp.opening ADD COLUMN written bigint NOT NULL DEFAULT 0;
