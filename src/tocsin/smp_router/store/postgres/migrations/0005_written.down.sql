ALTER TABLE tocsin_smp.opening DROP COLUMN written;
