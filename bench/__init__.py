"""Benchmarks: CPU next to a floor measured in the same run. `make bench`."""
