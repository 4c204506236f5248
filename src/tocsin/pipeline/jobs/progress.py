"""A job's progress in words on standard error, with a bar on a terminal, and its summary as a table or as JSON."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

POLL_SECONDS = 0.3


Shown = Callable[[str], None]
"""Shows what the job is doing now."""


@contextmanager
def step(spark: SparkSession | None, title: str) -> Iterator[Shown]:
    """Shows Spark's stages and tasks on a terminal while the body runs, and one line for each step elsewhere.

    Yields a function that names the step. A job without Spark has steps only.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda part: console.print(f"{title}: {part}", highlight=False)
        return
    words = (TextColumn("{task.description}"), TextColumn("{task.fields[tasks]}"))
    with Progress(
        SpinnerColumn(), *words, BarColumn(), TimeElapsedColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task(title, total=None, tasks="")
        with nullcontext() if spark is None else _watched(spark, bar, task):
            yield lambda part: bar.update(task, description=f"{title}: {part}")


@contextmanager
def _watched(spark: SparkSession, bar: Progress, task: TaskID) -> Iterator[None]:
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, bar, task, stop), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()


def _watch(spark: SparkSession, bar: Progress, task: TaskID, stop: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not stop.wait(POLL_SECONDS):
        stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
        running = [each for each in stages if each is not None]
        total, done = (
            sum(each.numTasks for each in running),
            sum(each.numCompletedTasks for each in running),
        )
        bar.update(task, total=total or None, completed=done, tasks=_in_words(len(running), done, total))


def _in_words(stages: int, done: int, total: int) -> str:
    if not total:
        return "planning"
    return f"{done:,} of {total:,} tasks" + (f" in {stages} stages" if stages > 1 else "")


def say_page(spark: SparkSession, job: str) -> None:
    """Say where Spark shows jobs and stages, if it does."""
    if address := spark.sparkContext.uiWebUrl:
        Console(stderr=True).print(f"{job}: jobs and stages: {address}", highlight=False, soft_wrap=True)


class Summary:
    """The figures of one run."""

    def __init__(self, job: str) -> None:
        self.job = job
        self.figures: dict[str, object] = {}
        self._began = time.monotonic()

    def add(self, **figures: object) -> None:
        self.figures.update(figures)

    def show(self, *, as_json: bool, notes: Mapping[str, str] | None = None) -> None:
        self.figures["seconds"] = round(time.monotonic() - self._began, 1)
        if as_json:
            json.dump({"job": self.job, **self.figures}, sys.stdout, default=str)
            sys.stdout.write("\n")
            return
        table = Table(title=f"pipeline {self.job}", title_justify="left", show_header=False)
        table.add_column(style="bold")
        table.add_column(justify="right")
        table.add_column()
        for name, value in self.figures.items():
            text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
            table.add_row(name.replace("_", " "), text, (notes or {}).get(name, ""))
        Console().print(table)
