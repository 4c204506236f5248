DROP TABLE tocsin_smp.packets, tocsin_smp.minimum_priorities, tocsin_smp.ntf_routers;
