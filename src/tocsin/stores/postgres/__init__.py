"""Stores whose durable side is PostgreSQL."""
