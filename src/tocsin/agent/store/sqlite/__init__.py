"""The agent's store in one SQLite file."""
