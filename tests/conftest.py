"""Settings of all tests, and the fixtures that several folders use."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it has no types

from tests.doubles.postgres_server import server_url, url

__all__ = ["server_url", "url"]

# The time of one example depends on what else the machine does: pytest's time limit is the only one.
settings.register_profile("tocsin", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tocsin")

HERE: Final = Path(__file__).parent
ADVERSITY: Final = HERE / "adversity"
GROUPS: Final = {
    HERE / "unit" / "pipeline": "spark",
    ADVERSITY / "test_chaos.py": "desk",
    ADVERSITY / "test_drift_end_to_end.py": "desk",
    ADVERSITY / "test_old_backup.py": "desk",
    ADVERSITY / "test_pipeline_cluster.py": "desk",
    ADVERSITY / "test_pipeline_end_to_end.py": "desk",
    ADVERSITY / "test_pipeline_following.py": "desk",
    ADVERSITY / "test_who_sees_what.py": "desk",
    ADVERSITY / "test_deliver_cluster.py": "jobs",
    ADVERSITY / "test_deliver_outage.py": "jobs",
    ADVERSITY / "test_spark_delivery.py": "jobs",
    ADVERSITY / "test_up.py": "jobs",
    HERE / "benchmarks": "benchmarks",
    HERE / "browser": "browser",
}
"""Tests that must not run in several processes at once: they share a Spark session, or each starts a Java.

The group that takes longest comes first.
"""
ORDER: Final = list(dict.fromkeys(GROUPS.values()))


def group_of(file: Path) -> str | None:
    return next((GROUPS[place] for place in (file, *file.parents) if place in GROUPS), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Starts with the groups, which take longest, so that no process is left working alone at the end."""
    places = {group: place for place, group in enumerate(ORDER)}
    items.sort(key=lambda item: places.get(group_of(item.path) or "", len(places)))


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Gives each process whole files, and all files of a group to one process.

    The marks of pytest-xdist would do, but pytest 9.2 ignores them (pytest-xdist issue 1386, decision 0017).
    """

    def _split_scope(self, nodeid: str) -> str:
        file = HERE.parent / nodeid.partition("::")[0]
        return group_of(file) or str(file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    return GroupScheduling(config, log)
