"""Keeps the lake's tables up to date: `events` from event logs, all other tables from `events`."""
