"""Tables that are surely small are written by the driver, whatever they were counted from."""

from __future__ import annotations

import pytest

from tocsin.pipeline.update.hourly_tables import DRIVERS_BYTES, most_bytes


@pytest.mark.parametrize(
    ("notifications", "groups", "few"),
    [
        (4_000_000, 24 * 40, True),  # a busy day of 40 SMP hosts
        (450_000, 14 * 24 * 40, True),  # two quiet weeks
        (4_500_000, 14 * 24 * 40, False),
        (10**10, 10**6, False),
        (0, 0, True),
    ],
)
def test_the_largest_table_is_bounded_by_its_groups_and_by_its_notifications(
    notifications: int, groups: int, few: bool
) -> None:
    assert (most_bytes(notifications, groups) <= DRIVERS_BYTES) == few
