"""Scenarios: a whole router in one process, driven by its clients over real TLS."""
