"""Building blocks of every store: append-only logs with group commit, compaction, packed row tables.

`postgres/` holds what both routers' databases share. Code that knows a queue, a token or a subscription belongs to the
store of its program.
"""
