"""The store of an NTF router: records, interface, and implementations.

`memory/` holds the records, `logs/` makes them durable in files, `postgres/` keeps them in a database. Commands do not
belong here.
"""
