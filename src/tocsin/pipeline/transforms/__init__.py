"""Rows to rows, as DataFrames of Spark or as arrays: no session, no reads, no writes, no clock."""
