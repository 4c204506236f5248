DROP TABLE tocsin_smp.opening;
