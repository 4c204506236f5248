"""Connections of the app: their queues at SMP routers, sending, receiving, rotation.

A connection has two queues, one for each direction (ntf.md 6.9, 6.10). Its notifications belong to `subscriptions`.
"""
