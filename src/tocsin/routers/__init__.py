"""Routers: what servers do with the protocols."""
