"""The pipeline's settings file, which `tocsin pipeline init` writes and `tocsin pipeline run` reads."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import msgspec

from tocsin.errors import ConfigError

DEFAULT_FILE: Final = Path("tocsin-pipeline.toml")
ROW_DAYS: Final = 30
COUNT_DAYS: Final = 400


@dataclass(frozen=True, slots=True)
class ServiceIntervals:
    """Seconds between two runs of a part of the service."""

    ingest: float = 5.0
    build: float = 300.0
    report: float = 3600.0


@dataclass(frozen=True, slots=True)
class ReconcileSettings:
    """Exports of routers. They are compared whenever the NTF router's export is newer than the last comparison."""

    ntf: str = ""
    smp: tuple[str, ...] = ()
    plan: str = "repair-plan.jsonl"


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    events: tuple[str, ...]
    """Event log folders of routers, or addresses to which they are copied."""
    lake: str = "tocsin-lake"
    report: str = "tocsin-report"
    report_days: int = 7
    smallest_group: int = 10
    ahead_hours: float = 24.0
    memory: str = "2g"
    master: str = "local[*]"
    work: str = ""
    storage: dict[str, str] = field(default_factory=dict)
    prometheus_port: int = 0
    """0: no port."""
    prometheus_host: str = "127.0.0.1"
    spark: dict[str, str] = field(default_factory=dict)
    """Spark's own settings by name."""
    every: ServiceIntervals = field(default_factory=ServiceIntervals)
    retention: dict[str, int] = field(default_factory=dict)
    """Days by table."""
    allow: dict[str, int] = field(default_factory=dict)
    """Notifications that need not be accounted for, by kind."""
    reconcile: ReconcileSettings = field(default_factory=ReconcileSettings)

    @property
    def ahead(self) -> int:
        """In microseconds."""
        return int(self.ahead_hours * 3_600_000_000)


def load_settings(
    path: Path, *, tables: Mapping[str, int], kinds: Sequence[str]
) -> tuple[PipelineSettings, dict[str, int]]:
    """The settings, and the days for which each table is kept. Relative paths start at the working folder.

    `tables`: usual days by table. `kinds`: names that `allow` may have. Raises ConfigError that names file and key.
    """
    try:
        found = msgspec.convert(_without_unknown(tomllib.loads(path.read_text()), path), PipelineSettings)
    except FileNotFoundError as error:
        raise ConfigError(f"no settings at {path}: write them with `tocsin pipeline init`") from error
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: {error}") from error
    _refuse_others(path, "retention", found.retention, tables)
    _refuse_others(path, "allow", found.allow, kinds)
    for name in found.spark:
        if not name.startswith("spark."):
            raise ConfigError(f'{path}, spark: write a setting of Spark as "spark.NAME", not as {name}')
    wrong = {
        "events": not found.events,
        "smallest_group": found.smallest_group < 1,
        "report_days": found.report_days < 1,
        "ahead_hours": found.ahead_hours < 0,
        "prometheus_host": not found.prometheus_host,
        "every": min(found.every.ingest, found.every.build, found.every.report) <= 0,
        "retention": any(days < 1 for days in found.retention.values()),
    }
    if not 0 <= found.prometheus_port <= 65_535:
        raise ConfigError(f"{path}, prometheus_port: must be a port up to 65535, or 0 for none")
    for name in (name for name, is_wrong in wrong.items() if is_wrong):
        raise ConfigError(f"{path}, {name}: must not be empty, 0 or negative")
    return found, {**tables, **found.retention}


def new_settings(
    *,
    events: Sequence[str | Path],
    lake: str,
    report: Path,
    storage: Mapping[str, str] | None = None,
    work: Path | None = None,
) -> str:
    """The text of a commented settings file."""
    chosen = "".join(f"\n{_text(name)} = {_text(value)}" for name, value in (storage or {}).items())
    folder = '# work = ""' if work is None else f"work = {_text(work)}"
    listed = "".join(f"\n    {_text(each)}," for each in events)
    return f"""# Settings of `tocsin pipeline run`. Other values than these are commented out with their defaults.
# Relative paths start at the folder in which the command runs.

# Event log folders of routers (their setting event_log), or addresses such as s3://bucket/router-1 to which they are
# copied. Routers share event_log_keys, so that their stages join.
events = [{listed}
]
# The tables: a folder, or the address of an object store.
lake = {_text(lake)}
# The folder for progress and status of jobs, if the tables are not in a folder.
{folder}
# The report and its CSV files, replaced each time.
report = {_text(report)}
# report_days = 7
# Groups of fewer devices are counted together or withheld. 1 shows everything: for a server of your own only.
# smallest_group = 10
# Events whose time is further ahead of this clock are quarantined.
# ahead_hours = 24
# memory = "2g"
# master = "local[*]"
# Prometheus reads there whether everything is accounted for: http://HOST:PORT/metrics. 0: no port.
# prometheus_port = 0
# prometheus_host = "127.0.0.1"

[every]  # seconds
# ingest = 5
# build = 300
# report = 3600

[retention]  # days by table; the others keep {ROW_DAYS} (rows) or {COUNT_DAYS} (counts)
# events = {ROW_DAYS}
# notifications = {ROW_DAYS}
# funnel_hourly = {COUNT_DAYS}

[allow]  # notifications that need not be accounted for
# never_received = 0

[reconcile]  # exports, e.g. from `tocsin ntf store export-subscriptions` in a timer
# ntf = ""
# smp = []
# plan = "repair-plan.jsonl"

[spark]  # Spark's own settings
# "spark.cores.max" = "4"

[storage]  # settings of object storage; set secrets as environment variables instead{chosen}
"""


def _without_unknown(found: dict[str, Any], path: Path) -> dict[str, Any]:
    """Raises ConfigError for keys that do not exist: a mistyped one must not be ignored."""
    kinds = {
        "": fields(PipelineSettings),
        "every": fields(ServiceIntervals),
        "reconcile": fields(ReconcileSettings),
    }
    for section, known in kinds.items():
        values = found if not section else found.get(section, {})
        _refuse_others(path, section or "settings", values, [each.name for each in known])
    return found


def _refuse_others(
    path: Path, section: str, values: object, known: Mapping[str, object] | Sequence[str]
) -> None:
    for name in values if isinstance(values, dict) else ():
        if name not in known:
            raise ConfigError(f"{path}, {section}: unknown key {name}; there are {', '.join(known)}")


def _text(value: Path | str) -> str:
    return msgspec.json.encode(str(value)).decode()
