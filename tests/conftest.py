"""Settings of all tests, and the fixtures that several folders use."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.doubles.postgres_server import server_url, url

__all__ = ["server_url", "url"]

# How long one example takes depends on what else the machine does: pytest's time limit is the only one.
settings.register_profile("tocsin", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tocsin")
