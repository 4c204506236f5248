"""The NTF router: the push server.

`service.py` assembles the process. `tokens` and `subscriptions` answer devices, `subscriber/` listens to SMP routers,
`delivery/` pushes to providers, `direct/` adds direct notifications, `store/` holds the records.
"""
