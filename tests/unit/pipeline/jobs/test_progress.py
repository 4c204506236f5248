"""A job says in words what it does: its steps, and on a terminal the tasks and stages of Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tocsin.pipeline.jobs.progress import _in_words, step


def test_without_a_terminal_each_step_is_a_line(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with step(spark, "build") as shown:
        shown("notifications")
        shown("funnel_hourly")
    assert capsys.readouterr().err.splitlines() == ["build: notifications", "build: funnel_hourly"]


@pytest.mark.parametrize(
    ("stages", "done", "total", "words"),
    [
        (0, 0, 0, "planning"),
        (1, 3, 1200, "3 of 1,200 tasks"),
        (2, 1, 9, "1 of 9 tasks in 2 stages"),
    ],
)
def test_tasks_and_stages_are_told_in_words(stages: int, done: int, total: int, words: str) -> None:
    assert _in_words(stages, done, total) == words
