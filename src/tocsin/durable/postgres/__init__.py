"""Shared by stores in PostgreSQL: translated errors, read-only snapshots, and an embedded server."""
