"""What transfers of any router's store share: arguments, a progress bar, and copying with a dry run before it."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.durable.transfers import Progress as TellProgress


def add_ends_arguments(parser: argparse.ArgumentParser) -> None:
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


def copy_to_logs(
    folder: Path, totals: tuple[int, ...], fill: Callable[[TellProgress], None], *, dry_run: bool
) -> ExitCode:
    if dry_run:
        print(f"Would be copied to {folder}: {totals}")
        return ExitCode.OK
    with progress_bar("Writing logs", totals) as progress:
        fill(progress)
    print(f"Copied to {folder}, and counted there: {totals}")
    return ExitCode.OK


def copy_to_database(
    folder: Path,
    totals: tuple[int, ...],
    require_empty: Callable[[], Coroutine[None, None, None]],
    fill: Callable[[TellProgress], Coroutine[None, None, None]],
    *,
    dry_run: bool,
) -> ExitCode:
    """From logs in the folder. A dry run only requires that there is no store in the database."""
    if dry_run:
        asyncio.run(require_empty())
        print(f"Would be copied from {folder}: {totals}")
        return ExitCode.OK
    with progress_bar("Writing to PostgreSQL", totals) as progress:
        asyncio.run(fill(progress))
    print(f"Copied from {folder}, and counted in the database: {totals}")
    return ExitCode.OK


@contextmanager
def progress_bar(text: str, totals: Iterable[int]) -> Iterator[TellProgress]:
    """On standard error, and only on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(text, total=sum(totals))
        yield lambda count: progress.advance(task, count)
