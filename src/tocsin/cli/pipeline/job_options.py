"""Options that all pipeline jobs share."""

from __future__ import annotations

import argparse
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tocsin.errors import ConfigError
from tocsin.pipeline.lake.status_files import DEFAULT_LAKE

if TYPE_CHECKING:
    from tocsin.pipeline.jobs.options import JobOptions

DRIVER_MEMORY: Final = "2g"


def add_lake(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lake",
        default=str(DEFAULT_LAKE),
        metavar="PLACE",
        help="the tables: a folder, or an address such as s3://bucket/lake (default: %(default)s)",
    )
    parser.add_argument(
        "--storage",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of object storage, such as AWS_REGION=eu-central-1; may be repeated. Set secrets as "
        "environment variables instead",
    )
    parser.add_argument(
        "--work",
        type=Path,
        metavar="DIR",
        help="local folder for the progress and status of jobs, if the tables are at an address "
        f"(default: {DEFAULT_LAKE})",
    )


def add_events(
    parser: argparse.ArgumentParser,
    *,
    required: bool = True,
    which: str = "a router's event_log folder, or an address to which it is copied, such as s3://bucket/router-1",
) -> None:
    parser.add_argument(
        "--events",
        action="append",
        default=[],
        required=required,
        metavar="PLACE",
        help=f"{which}; may be repeated",
    )


def add_event_logs(parser: argparse.ArgumentParser) -> None:
    """For jobs that read events from the routers' logs."""
    add_events(parser)
    parser.add_argument(
        "--ahead",
        type=float,
        default=24,
        metavar="HOURS",
        help="quarantine events whose time is further ahead of this clock (default: %(default)s)",
    )


def ahead_of(options: argparse.Namespace) -> int:
    """In microseconds. Raises ConfigError if it is negative."""
    if options.ahead < 0:
        raise ConfigError(f"--ahead {options.ahead}: must not be negative")
    return int(options.ahead * 3_600_000_000)


def add_smallest_group(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--smallest-group",
        type=group_size,
        metavar="DEVICES",
        help="count groups of fewer devices together, or withhold them (default: as the tables have it, at first 10)",
    )


def add_job_options(parser: argparse.ArgumentParser, *, spark: bool = True, dry_run: bool = False) -> None:
    """`spark`: whether the job starts Spark."""
    add_lake(parser)
    if spark:
        _add_spark(parser)
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    if dry_run:
        parser.add_argument(
            "--dry-run", action="store_true", help="show what would be done, without doing it"
        )


def _add_spark(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master",
        metavar="URL",
        help="where Spark runs: local[N] or a cluster, e.g. spark://host:7077 (default: local[*], or the master "
        "of spark-submit)",
    )
    parser.add_argument(
        "--memory",
        default=DRIVER_MEMORY,
        metavar="SIZE",
        help="memory of Spark's driver (default: %(default)s)",
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a Spark setting; may be repeated",
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
    """Raises ConfigError for an invalid --conf or --storage, or if Spark is not installed."""
    require_spark()
    from tocsin.pipeline.jobs.options import JobOptions

    spark_options = {}
    for each in getattr(options, "conf", []):
        name, equals, value = each.partition("=")
        if not equals or not name.startswith("spark."):
            raise ConfigError(f"--conf {each}: write a Spark setting as spark.NAME=VALUE")
        spark_options[name] = value
    return JobOptions(
        lake=options.lake,
        storage=storage_options(options),
        work=options.work,
        master=getattr(options, "master", None),
        memory=getattr(options, "memory", DRIVER_MEMORY),
        spark_options=spark_options,
        dry_run=getattr(options, "dry_run", False),
        as_json=options.json,
    )


def storage_options(options: argparse.Namespace) -> dict[str, str]:
    """Raises ConfigError for an invalid --storage."""
    storage = {}
    for each in options.storage:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise ConfigError(f"--storage {name}: write a setting as NAME=VALUE")
        storage[name] = value
    return storage


def absolute_place(place: str) -> str:
    """An address in object storage, or the absolute path of a folder."""
    return place if "://" in place else str(Path(place).absolute())


def require_spark() -> None:
    """Raises ConfigError if Spark is not installed."""
    if find_spec("pyspark") is None:
        raise ConfigError("the pipeline needs Spark: install it with pip install 'tocsin[pipeline]'")


def group_size(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of devices, 1 or more")
    return int(text)


def day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a day: write it like 2026-11-15") from None
