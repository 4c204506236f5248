"""The counters and latencies of an NTF router, and its statistics file. Metrics are in `metrics`."""
