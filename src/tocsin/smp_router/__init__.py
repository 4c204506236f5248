"""The SMP router: message queues and their notification side.

`service.py` assembles the process. Behaviour is one module per entity: queues, messages, notifications, links,
services. `session/` holds what all commands share, `proxy/` and `direct/` two larger parts, `store/` the records.
"""
