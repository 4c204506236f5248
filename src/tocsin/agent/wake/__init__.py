"""Waking by a push: opening it, finding out which queues have messages, and fetching those.

Receiving messages without a push belongs to `connections`.
"""
