"""The store of an SMP router: records, interface, and implementations.

`memory/` holds the records, `logs/` makes them durable in files, `postgres/` in a database. Commands do not belong
here.
"""
