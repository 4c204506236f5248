"""Settings of all tests, and the fixtures that several folders use."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests.doubles.postgres_server import server_url, url

__all__ = ["server_url", "url"]

# How long one example takes depends on what else the machine does: pytest's time limit is the only one.
settings.register_profile("tocsin", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tocsin")

HERE: Final = Path(__file__).parent
TOGETHER: Final = {
    HERE / "unit" / "pipeline": "spark",
    HERE / "adversity" / "test_drift_end_to_end.py": "jobs",
    HERE / "adversity" / "test_pipeline_cluster.py": "jobs",
    HERE / "adversity" / "test_pipeline_end_to_end.py": "jobs",
    HERE / "adversity" / "test_pipeline_following.py": "jobs",
    HERE / "adversity" / "test_spark_delivery.py": "jobs",
    HERE / "adversity" / "test_up.py": "jobs",
    HERE / "benchmarks": "benchmarks",
    HERE / "browser": "browser",
}
"""Tests that several processes must not run at a time: they share a Spark session, or each starts a Java."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first, so that at the end no process works alone."""
    together: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        groups = [TOGETHER[place] for place in (item.path, *item.path.parents) if place in TOGETHER]
        for group in groups:
            item.add_marker(pytest.mark.xdist_group(group))
        (together if groups else others).append(item)
    items[:] = together + others
