"""What an SMP router remembers: records, the interface of its store, and the stores.

`memory/` holds the records, `logs/` makes them durable in files, `postgres/` in a database.
"""
