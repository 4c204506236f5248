"""The agent's store in one SQLite file, optionally encrypted under a passphrase."""
