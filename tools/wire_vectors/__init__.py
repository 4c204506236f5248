"""Replays recorded traffic of the reference routers through our codecs: `python -m tools.wire_vectors DIR`."""
