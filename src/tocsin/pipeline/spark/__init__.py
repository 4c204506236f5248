"""Spark itself: the session, its Java, settings of queries, streams and input paths. Knows no table and no event."""
