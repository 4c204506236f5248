"""What `tocsin smp store import` and `export` share: where from, where to, and a progress bar."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tocsin.cli.smp_files import add_config_argument, settings_of
from tocsin.errors import ConfigError
from tocsin.stores.transfers import Progress as TellProgress


class Ends(NamedTuple):
    folder: Path
    database_url: str


def add_transfer_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_argument(parser)
    add_ends_arguments(parser)


def add_ends_arguments(parser: argparse.ArgumentParser) -> None:
    """For transfers of any router's store."""
    parser.add_argument(
        "--folder", type=Path, help="folder of the logs (default: store_path of the settings)"
    )
    parser.add_argument(
        "--database",
        metavar="URL",
        help="of PostgreSQL; other users of this machine may see it (default: database_url of the settings)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="read the source and check the target, write nothing"
    )


def ends_of(options: argparse.Namespace) -> Ends:
    """Raises ConfigError if one of both is not known."""
    settings = settings_of(options)
    folder, url = options.folder or settings.store, options.database or settings.database_url
    if folder is None:
        raise ConfigError("[STORE_LOG] enable is off: say --folder")
    if url is None:
        raise ConfigError("[TOCSIN] database_url is not set: say --database")
    return Ends(folder, url)


@contextmanager
def progress_bar(text: str, totals: Iterable[int]) -> Iterator[TellProgress]:
    """On standard error, and only on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(text, total=sum(totals))
        yield lambda count: progress.advance(task, count)
