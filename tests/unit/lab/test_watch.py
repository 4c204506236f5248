"""What the page says about the job while the router does not hand over to it."""

from __future__ import annotations

import pytest

from tocsin.lab.deliver_job import JobPhase
from tocsin.lab.watch import shown_phase


@pytest.mark.parametrize(
    ("phase", "away", "batches", "shown"),
    [
        (JobPhase.PUSHING, False, True, JobPhase.PUSHING),
        (JobPhase.PUSHING, False, False, JobPhase.PUSHING),
        (JobPhase.PUSHING, True, False, JobPhase.STARTING),
        (JobPhase.PUSHING, True, True, JobPhase.LATE),
        (JobPhase.GONE, True, True, JobPhase.GONE),
        (JobPhase.OFF, False, False, JobPhase.OFF),
    ],
)
def test_a_job_that_the_router_does_not_see_is_starting_or_late(
    phase: JobPhase, away: bool, batches: bool, shown: JobPhase
) -> None:
    assert shown_phase(phase, away=away, batches=batches) is shown
