"""Estimates the load that a population of devices puts on routers, under three protocols. Reads no table."""
