"""`tocsin pipeline report`: tables → one HTML page and CSV files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from tocsin.errors import ConfigError
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, step
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import STATUS, write_status
from tocsin.pipeline.report.collection import Collection, days_of
from tocsin.pipeline.report.figures import Figures
from tocsin.pipeline.report.files import csv_files, write_files
from tocsin.pipeline.report.sections.page import report_page
from tocsin.pipeline.report.verdict import MEANINGS, headline, metrics_text
from tocsin.pipeline.schemas.hourly import ACCOUNT

PAGE: Final = "report.html"
METRICS: Final = "tocsin_pipeline.prom"
"""For the textfile collector of Prometheus' node exporter."""
DOES_NOT_ADD_UP: Final = "the accounting does not add up: see the page"
SUMMED: Final = (*ACCOUNT, "redelivered", "difference")


@dataclass(frozen=True, slots=True)
class ReportOptions:
    folder: Path
    first: date | None = None
    last: date | None = None
    days: int = 7
    """Number of days if no first day is given."""
    allowed: Mapping[str, int] = field(default_factory=dict)
    """By kind: how many notifications may be unaccounted for before the check fails."""

    def __post_init__(self) -> None:
        if self.days < 1:
            raise ConfigError(f"--days {self.days}: must be at least 1")
        if self.first and self.last and self.last < self.first:
            raise ConfigError(f"--from {self.first} is after --to {self.last}: swap them")


def run_report(options: JobOptions, report: ReportOptions) -> Figures:
    """Works without Spark. Also records in the status `check` and as metrics whether everything is accounted for.

    Raises StoreError if the tables have no rows of these days, or the files cannot be written.
    """
    return report_of(options.existing_lake(), report, as_json=options.as_json)


def report_of(lake: Lake, report: ReportOptions, *, as_json: bool) -> Figures:
    """Like `run_report`, for a lake that is open."""
    summary = Summary("report")
    days = days_of(lake, report.first, report.last, report.days)
    with step(None, "report") as shown:
        figures = Collection(lake).figures(days, now=datetime.now(UTC), step=shown)
    written = write_files(report.folder, {PAGE: report_page(figures), **csv_files(figures)})
    sums = figures.period.accounting
    summary.add(first=days.first.isoformat(), last=days.last.isoformat())
    summary.add(**{name: getattr(sums, name) for name in SUMMED})
    summary.add(page=str(written[0]), csv_files=len(written) - 1)
    summary.add(**figures.losses.found(), verdict=headline(figures.losses))
    notes = {name: MEANINGS[name][1] for name in figures.losses.found()}
    if sums.difference:
        notes["difference"] = DOES_NOT_ADD_UP
    summary.show(as_json=as_json, notes=notes)
    _record_check(lake.folder, figures, report.allowed)
    return figures


def _record_check(folder: Path, figures: Figures, allowed: Mapping[str, int]) -> None:
    """For the page, `tocsin doctor` and Prometheus."""
    numbers = {name: getattr(figures.losses, name) for name in MEANINGS}
    failed = figures.is_off(allowed)
    said = headline(figures.losses) if figures.losses.beyond(allowed) else DOES_NOT_ADD_UP if failed else ""
    write_status(folder, "check", "failed" if failed else "done", dict(numbers), said)
    text = metrics_text(
        figures.losses,
        checked_at=figures.made_at.timestamp(),
        built_at=figures.built_at.timestamp(),
        failed=failed,
    )
    write_files(folder / STATUS, {METRICS: text})
