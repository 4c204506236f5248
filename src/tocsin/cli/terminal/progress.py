"""A progress bar on standard error, for commands that copy or change many records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(text: str, totals: Iterable[int]) -> Iterator[Callable[[int], None]]:
    """Yields the function that advances the bar. Only a terminal shows it."""
    from rich.console import Console  # most commands start faster without it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(text, total=sum(totals))
        yield lambda count: progress.advance(task, count)
