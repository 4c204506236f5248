"""Reads the lines of a log as records, without changing the log.

A line that cannot be read stops the reading, unless the caller asked to skip such lines. Skipped lines are kept next to
the log, in a file that ends in `.broken`. A last line without its end is what a crash left of a write; it is ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from tocsin.durable.log_fields import BadLogLine
from tocsin.durable.log_files import AppendOnlyFile, read_lines

logger = logging.getLogger(__name__)

T = TypeVar("T")


class CountsBroken(Protocol):
    broken: int
    """Lines that could not be read, and were skipped as asked."""


def records_of(
    path: Path, decode: Callable[[bytes], T], report: CountsBroken, *, skip_broken: bool, keep_broken: bool
) -> Iterator[T]:
    """The lines of one log, decoded."""
    broken: list[bytes] = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            yield decode(line)
        except BadLogLine as error:
            if not skip_broken:
                raise BadLogLine(error.reason, file=str(path), line=number) from None
            logger.warning("%s, line %d: %s; SKIPPED as asked", path, number, error.reason)
            broken.append(line + b"\n")
    if broken:
        report.broken += len(broken)
        if keep_broken:
            keep_broken_lines(path, broken)


def keep_broken_lines(path: Path, lines: list[bytes]) -> None:
    """Keep broken lines, so that an operator can repair them."""
    file = AppendOnlyFile(path.with_name(path.name + ".broken"))
    try:
        file.append(b"".join(lines))
    finally:
        file.close()
    logger.warning("%d lines of %s that cannot be read are kept in %s", len(lines), path.name, file.path)
