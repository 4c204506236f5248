-- One row: how often the store was opened. A router whose number is not the last one may write nothing any more.
CREATE TABLE tocsin_smp.opening (
    number bigint NOT NULL
);

INSERT INTO tocsin_smp.opening VALUES (0);
