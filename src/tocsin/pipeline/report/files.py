"""The report's figures as CSV files, and writing files so that readers see the old or the new one, never half of it."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from tocsin.errors import StoreError
from tocsin.pipeline.report.changes import changes
from tocsin.pipeline.report.figures import (
    ENGINE_RANKS,
    RANKS,
    DeliveryAccount,
    Figures,
    HostDrift,
    HostHealth,
    QuarantinedLines,
    TokenDay,
)
from tocsin.pipeline.report.verdict import MEANINGS


def csv_files(figures: Figures) -> dict[str, str]:
    """File name → content. Times are in microseconds unless the column says otherwise."""
    period, accounts = figures.period, [field.name for field in fields(DeliveryAccount)]
    found = changes(period, figures.before) if figures.before else ()
    return {
        "accounting.csv": _csv(accounts, [[getattr(period.accounting, name) for name in accounts]]),
        "not_accounted_for.csv": _csv(
            ["kind", "notifications"], ((name, getattr(figures.losses, name)) for name in MEANINGS)
        ),
        "hours.csv": _csv(
            ["hour", *accounts],
            (
                [f"{each.at:%Y-%m-%dT%H:00Z}", *(getattr(each.accounting, name) for name in accounts)]
                for each in figures.hours
            ),
        ),
        "funnel.csv": _csv(
            ["stage", "notifications"], ((str(stage), n) for stage, n in period.stages.items())
        ),
        "latency.csv": _csv(
            ["leg", "n", "negative", *(f"p{rank * 100:.0f}_us" for rank in RANKS)],
            ((span.name, span.n, span.negative, *span.us) for span in period.spans),
        ),
        "smp_host_hours.csv": _csv(
            ["smp_host", "hour_of_day", "received", "failed_or_shed", "difference"],
            (
                (each.host, each.hour, each.received, each.lost, each.difference)
                for each in figures.host_hours
            ),
        ),
        "engines.csv": _csv(
            ["engine", "accepted", "failed", *(f"p{rank * 100:.0f}_us" for rank in ENGINE_RANKS)],
            (
                (each.engine, each.accepted, each.failed, *(each.us or [""] * len(ENGINE_RANKS)))
                for each in period.engines
            ),
        ),
        "tokens.csv": _rows_of(TokenDay, figures.tokens),
        "outcomes.csv": _csv(
            ["outcome", "reason", "notifications"],
            ((each.outcome, each.reason, each.n) for each in period.outcomes),
        ),
        "smp_hosts.csv": _rows_of(HostHealth, figures.servers),
        "quarantine.csv": _rows_of(QuarantinedLines, figures.quarantined),
        "drift.csv": _rows_of(HostDrift, figures.drift or ()),
        "changes.csv": _csv(
            ["better", "change"], (("" if each.better is None else each.better, each.text) for each in found)
        ),
    }


def write_files(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Replaces existing files. Raises StoreError if the folder cannot be written."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            draft = folder / f".draft-{os.getpid()}-{name}"
            draft.write_text(text, encoding="utf-8", newline="")
            written.append(draft.replace(folder / name))
    except OSError as error:
        raise StoreError(
            f"cannot write to {folder}: {error.strerror}. Choose another folder with --out"
        ) from error
    return written


def _rows_of(kind: type, values: Iterable[object]) -> str:
    columns = [field.name for field in fields(kind)]
    return _csv(columns, ([getattr(each, name) for name in columns] for each in values))


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow([_inert(value) for value in row])
    return out.getvalue()


def _inert(value: object) -> object:
    """Quotes text that spreadsheets would run as a formula: strangers choose host names."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
