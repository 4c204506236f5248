"""Overload: ten times the load that the routers can take, and what must hold meanwhile and afterwards (`make soak`).

Not tests and not benchmarks: `tests/` runs a short version, `bench/` measures cost.
"""
