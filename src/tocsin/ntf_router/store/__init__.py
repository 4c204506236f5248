"""What an NTF router remembers: records, the interface of its store, and the stores.

`memory/` holds the records, `logs/` makes them durable in files, `postgres/` keeps them in a database.
"""
