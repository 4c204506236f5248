"""The card `Who pushes`: what it says in each state of the job."""

from __future__ import annotations

from typing import Any

import pytest

from tocsin.web.engines_view import PHASES, engines_view


def view(phase: str = "pushing", restarts: int = 0, **figures: Any) -> dict[str, Any]:
    return engines_view(
        {"inline": 7, "spark": 5},
        {"inline": 0.2, "spark": None},
        phase=phase,
        restarts=restarts,
        figures=figures,
        page="http://127.0.0.1:4040",
        tables=[("events", 12)],
    )


def test_both_engines_have_their_pushes_and_times() -> None:
    shown = view()
    assert [(each["key"], each["pushes"], each["seconds"]) for each in shown["engines"]] == [
        ("inline", 7, 0.2),
        ("spark", 5, None),
    ]
    assert shown["tables"] == [{"name": "events", "rows": 12}]


def test_the_job_says_what_its_status_has() -> None:
    facts = view(batches=3, state_rows=9, taken_until="2026-11-15T12:00:00Z", unknown=1)["job"]["facts"]
    assert [(each["key"], each["value"]) for each in facts] == [
        ("batches", 3),
        ("state_rows", 9),
        ("taken_until", "2026-11-15T12:00:00Z"),
    ]


@pytest.mark.parametrize("phase", PHASES)
def test_every_state_has_words_and_only_a_running_job_has_a_page(phase: str) -> None:
    job = view(phase)["job"]
    assert job["word"]
    assert job["meaning"].endswith(".")
    assert bool(job["page"]) == (phase in ("pushing", "late"))


def test_restarts_are_told() -> None:
    assert view("gone", restarts=2)["job"]["word"] == "gone, restarting, restarted 2×"
