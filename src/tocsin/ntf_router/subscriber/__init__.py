"""Connections to SMP routers: subscribing to queues, and receiving their notifications."""
