"""The delivery event log, and every file that routers and the pipeline exchange.

Both sides import the formats from here, so they cannot disagree. Code that decides what happens to a notification
belongs to a router; code that needs Spark belongs to `pipeline/`.
"""
