"""Bytes without meaning: primitive encodings, padding, batches, transmissions. Knows no command."""
