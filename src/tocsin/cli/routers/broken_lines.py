"""What commands that read a router's logs share."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from tocsin.durable.log_fields import BadLogLine
from tocsin.errors import StoreError

_OPTION = "--skip-broken-lines"


def add_broken_lines_argument(parser: argparse.ArgumentParser, *, copied: bool = True) -> None:
    where = "are copied to files that end in .broken" if copied else "stay where they are"
    parser.add_argument(
        _OPTION,
        action="store_true",
        help=f"go on without lines of the logs that cannot be read; they {where}",
    )


@contextmanager
def hint_at_broken_lines(*, copied: bool = True) -> Iterator[None]:
    """Whoever is stopped by a broken line is told what can be done."""
    try:
        yield
    except BadLogLine as error:
        where = f"are copied to {error.file}.broken" if copied else f"stay in {error.file}"
        raise StoreError(
            f"{error}. {_OPTION} goes on without such lines, and what they say is lost: they {where}"
        ) from error
