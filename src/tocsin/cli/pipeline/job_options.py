"""Options that all pipeline jobs share."""

from __future__ import annotations

import argparse
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tocsin.errors import ConfigError
from tocsin.pipeline.lake.status_files import DEFAULT_LAKE

if TYPE_CHECKING:
    from tocsin.pipeline.jobs.options import JobOptions


def add_job_options(parser: argparse.ArgumentParser, *, dry_run: bool = False) -> None:
    parser.add_argument(
        "--lake",
        type=Path,
        default=DEFAULT_LAKE,
        metavar="DIR",
        help="folder of the tables (default: %(default)s)",
    )
    parser.add_argument(
        "--master",
        default="local[*]",
        metavar="URL",
        help="where Spark runs: local[N] or a cluster, e.g. spark://host:7077 (default: %(default)s)",
    )
    parser.add_argument(
        "--memory", default="2g", metavar="SIZE", help="memory of Spark's driver (default: %(default)s)"
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a Spark setting; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    if dry_run:
        parser.add_argument(
            "--dry-run", action="store_true", help="show what would be done, without doing it"
        )


def add_out_option(parser: argparse.ArgumentParser, default: Path) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        default=default,
        metavar="DIR",
        help="folder of the files (default: %(default)s)",
    )


def job_options(options: argparse.Namespace) -> JobOptions:
    """Raises ConfigError for an invalid --conf, or if Spark is not installed."""
    if find_spec("pyspark") is None:
        raise ConfigError("the pipeline needs Spark: install it with pip install 'tocsin[pipeline]'")
    from tocsin.pipeline.jobs.options import JobOptions

    spark_options = {}
    for each in options.conf:
        name, equals, value = each.partition("=")
        if not equals or not name.startswith("spark."):
            raise ConfigError(f"--conf {each}: write a Spark setting as spark.NAME=VALUE")
        spark_options[name] = value
    return JobOptions(
        lake=options.lake,
        master=options.master,
        memory=options.memory,
        spark_options=spark_options,
        dry_run=getattr(options, "dry_run", False),
        as_json=options.json,
    )


def day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a day: write it like 2026-11-15") from None
