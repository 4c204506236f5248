"""Settings of all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long one example takes depends on what else the machine does: pytest's time limit is the only one.
settings.register_profile("tocsin", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tocsin")
