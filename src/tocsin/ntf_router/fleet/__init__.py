"""Several NTF routers with one identity on one PostgreSQL: leases of SMP routers and of pushes, and notices."""
