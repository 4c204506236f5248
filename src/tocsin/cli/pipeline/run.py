"""`tocsin pipeline run`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tocsin.cli.pipeline.job_options import require_spark
from tocsin.pipeline.service.settings import DEFAULT_FILE, load_settings

NAME = "run"
SUMMARY = "run the whole pipeline as a service"
DESCRIPTION = (
    "Reads event logs all the time. At the intervals of the settings file it brings tables up to date, removes expired "
    "rows, writes the report, checks the accounting and compares routers. If a part fails, it is reported and tried "
    "again; the other parts continue."
)
EXAMPLE = "tocsin pipeline run --config /etc/opt/tocsin/pipeline.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        default=DEFAULT_FILE,
        metavar="FILE",
        help="the settings file from `tocsin pipeline init` (default: %(default)s)",
    )
    parser.add_argument(
        "--once", action="store_true", help="do everything once, then end, for example when a timer starts it"
    )
    parser.add_argument("--json", action="store_true", help="print summaries as JSON")


def run(options: argparse.Namespace) -> int:
    """With --once, 1 if a part failed or notifications are not accounted for."""
    require_spark()
    from tocsin.pipeline.jobs.options import JobOptions
    from tocsin.pipeline.jobs.run import run_service
    from tocsin.pipeline.report.verdict import MEANINGS
    from tocsin.pipeline.update.retention import RETENTION

    settings, retention = load_settings(options.config, tables=RETENTION, kinds=tuple(MEANINGS))
    job = JobOptions(
        settings.lake,
        settings.master,
        settings.memory,
        settings.spark,
        as_json=options.json,
        storage=settings.storage,
        work=Path(settings.work) if settings.work else None,
    )
    return run_service(job, settings, retention, once=options.once)
