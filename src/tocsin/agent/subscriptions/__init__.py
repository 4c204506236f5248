"""Notification subscriptions: the supervisor decides what each connection needs, workers do it at the routers.

`supervision`, `answers` and `row_changes` decide and are pure. `job`, `smp_actions`, `ntf_actions` and `priorities` do
what they say. Messages and the token have folders of their own.
"""
