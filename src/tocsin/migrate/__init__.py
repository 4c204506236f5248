"""Moves of a router between the reference's server and Tocsin, and of its store between logs and PostgreSQL.

Arguments and output are in `cli.migrate`; formats of stores and settings belong to the routers.
"""
