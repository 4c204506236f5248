"""`tocsin pipeline report`: tables → one HTML page and CSV files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from tocsin.errors import ConfigError
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, step
from tocsin.pipeline.lake.lake import existing_lake
from tocsin.pipeline.report.collection import Collection, days_of
from tocsin.pipeline.report.figures import Figures
from tocsin.pipeline.report.files import csv_files, write_files
from tocsin.pipeline.report.sections.page import report_page
from tocsin.pipeline.spark.session import spark_session

PAGE: Final = "report.html"
SUMMED: Final = [
    "received",
    "accepted",
    "superseded",
    "failed",
    "shed",
    "pending",
    "redelivered",
    "difference",
]


@dataclass(frozen=True, slots=True)
class ReportOptions:
    folder: Path
    first: date | None = None
    last: date | None = None
    days: int = 7
    """Number of days if no first day is given."""

    def __post_init__(self) -> None:
        if self.days < 1:
            raise ConfigError(f"--days {self.days}: must be at least 1")
        if self.first and self.last and self.last < self.first:
            raise ConfigError(f"--from {self.first} is after --to {self.last}: swap them")


def run_report(options: JobOptions, report: ReportOptions) -> Figures:
    """Raises StoreError if the tables have no rows of these days, or the files cannot be written."""
    summary = Summary("report")
    lake = existing_lake(options.lake)
    days = days_of(lake, report.first, report.last, report.days)
    with (
        spark_session(options.spark("report", short=True)) as spark,
        step(spark, "report") as shown,
    ):
        figures = Collection(spark, lake).figures(days, now=datetime.now(UTC), step=shown)
    written = write_files(report.folder, {PAGE: report_page(figures), **csv_files(figures)})
    sums = figures.period.accounting
    summary.add(first=days.first.isoformat(), last=days.last.isoformat())
    summary.add(**{name: getattr(sums, name) for name in SUMMED})
    summary.add(page=str(written[0]), csv_files=len(written) - 1)
    notes = {"difference": "the accounting does not add up: see the page"} if sums.difference else {}
    summary.show(as_json=options.as_json, notes=notes)
    return figures
