"""What stores in PostgreSQL share: translated errors, and a PostgreSQL server that Tocsin runs itself."""
