"""Bytes without meaning: primitive encodings, padding, batches, transmissions.

Nothing here knows a command or does I/O: commands belong to `protocol/`.
"""
