"""`tocsin pipeline init`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tocsin.cli.pipeline.job_options import absolute_place, add_events, add_lake, storage_options
from tocsin.doctor.installations import NamedPlaces, find_installation
from tocsin.errors import ConfigError
from tocsin.events.event_log import SetsEventLog
from tocsin.events.pseudonyms import keys_folder
from tocsin.pipeline.service.settings import DEFAULT_FILE, new_settings

NAME = "init"
SUMMARY = "write a settings file that finds the routers of this machine"
DESCRIPTION = (
    "Looks for the routers of this machine and writes the settings of `tocsin pipeline run`: their event logs, the "
    "tables, the report, intervals and retention. An existing file is never overwritten."
)
EXAMPLE = "tocsin pipeline init --lake /var/opt/tocsin-lake"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        "--out",
        type=Path,
        default=DEFAULT_FILE,
        metavar="FILE",
        help="the settings file to write (default: %(default)s)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        action="append",
        default=[],
        help="folder of a router's settings; may be repeated (default: the usual folders)",
    )
    add_events(
        parser, required=False, which="a further event_log folder, or an address to which one is copied"
    )
    add_lake(parser)
    parser.add_argument(
        "--report",
        type=Path,
        default=Path("tocsin-report"),
        metavar="DIR",
        help="folder of the report (default: %(default)s)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the file, without writing it")


def run(options: argparse.Namespace) -> int:
    folders, keys = _event_logs(options.folder)
    events = [absolute_place(each) for each in (*map(str, folders), *options.events)]
    if not events:
        raise ConfigError(
            "no router of this machine has an event log: set event_log in its settings, or name a folder with --events"
        )
    lake = absolute_place(options.lake)
    text = new_settings(
        events=events,
        lake=lake,
        report=options.report.absolute(),
        storage=storage_options(options),
        work=None if options.work is None else options.work.absolute(),
    )
    if options.dry_run:
        print(text, end="")
        return 0
    try:
        with options.config.open("x") as file:
            file.write(text)
    except FileExistsError as error:
        raise ConfigError(
            f"{options.config} exists: edit it, or choose another file with --config"
        ) from error
    except OSError as error:
        raise ConfigError(f"{options.config} cannot be written: {error.strerror}") from error
    print(f"Created {options.config} with {len(events)} event logs: {', '.join(events)}")
    if len(set(keys)) > 1:
        print(
            "The routers use different keys for pseudonyms, so their stages cannot be joined: set event_log_keys of "
            f"all of them to one folder, e.g. {keys[0]}."
        )
    print(f"Next: tocsin pipeline run --config {options.config}")
    return 0


def _event_logs(folders: list[Path]) -> tuple[list[Path], list[Path]]:
    """Event logs and key folders of the routers that have one."""
    try:
        routers = find_installation(NamedPlaces(folders=folders)).routers
    except ConfigError:
        if folders:
            raise
        return [], []
    settings: list[SetsEventLog] = [each.settings.load(each.file, {}) for each in routers]
    logs = [
        (each.event_log, keys_folder(each.event_log, each.event_log_keys))
        for each in settings
        if each.event_log
    ]
    return [log for log, _ in logs], [key for _, key in logs]
