DROP TABLE tocsin_smp.notifications, tocsin_smp.messages;
