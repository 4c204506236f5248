"""When the lines of days are written."""

from __future__ import annotations

from itertools import islice

import pytest

from tocsin.operate.statistics_values import first_line_at, line_times

DAY = 86_400.0


@pytest.mark.parametrize(
    ("now", "start", "at"),
    [
        (0.5 * DAY, 0.0, DAY),
        (DAY - 0.5, 0.0, DAY),
        (DAY, 0.0, 2 * DAY),
        (DAY + 10.0, 3600.0, DAY + 3600.0),
        (DAY + 3600.0, 3600.0, 2 * DAY + 3600.0),
        (DAY + 7200.0, 3600.0, 2 * DAY + 3600.0),
    ],
)
def test_the_first_line_is_due_at_its_time_of_day_or_on_the_next_day(
    now: float, start: float, at: float
) -> None:
    """N21: on the next day if its time is past."""
    assert first_line_at(now, start) == at


def test_N21_further_lines_come_at_exact_intervals() -> None:
    """N21: from the first one on."""
    assert list(islice(line_times(DAY + 7200.0, 3600.0, DAY), 3)) == [n * DAY + 3600.0 for n in (2, 3, 4)]
