"""Worker processes that have the TLS connections of a router with more than one core (decision 0032).

Here belongs what crosses from a worker to the router's process and back. Commands, queues and the store do not: they
are in the router's process alone.
"""
