"""The counters of an SMP router and its statistics file. Metrics for Prometheus are in `operator`."""
