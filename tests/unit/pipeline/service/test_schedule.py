"""What is due, by a clock that the test holds."""

from __future__ import annotations

from tocsin.pipeline.service.schedule import Schedule


def test_parts_are_due_at_once_and_then_at_their_intervals() -> None:
    schedule = Schedule({"build": 60, "report": 3600})
    assert schedule.due(100) == ["build", "report"]
    schedule.done("build", 110)
    schedule.done("report", 120)
    assert (schedule.due(169), schedule.due(170)) == ([], ["build"])


def test_a_part_that_is_late_runs_once() -> None:
    schedule = Schedule({"build": 60})
    schedule.done("build", 0)
    assert schedule.due(1000) == ["build"]
    schedule.done("build", 1001)
    assert schedule.due(1002) == []
