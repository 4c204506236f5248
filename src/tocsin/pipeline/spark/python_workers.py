"""Spark's Python processes: the first step of functions that run there, and how Java talks to them."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

LONGEST_PARENT: Final = 45
"""Characters. The system allows about 104 for the path of a socket. Our folder adds 16, and Spark 43."""

_frozen = False


def freeze_imports() -> None:
    """Leave what a process has imported out of garbage collection, once.

    Spark collects garbage after every task. Without this, each collection walks through all of pandas and PyArrow,
    which takes most of the time of a small task.
    """
    global _frozen
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True


@contextmanager
def unix_sockets(master: str | None) -> Iterator[Mapping[str, str]]:
    """Settings with which Java and Python talk over Unix sockets on this machine. Empty for a cluster.

    Small batches take about two thirds of the time that they take over TCP. The sockets ask for no secret, so they lie
    in a folder that only this user may enter.
    """
    local = master is not None and master.startswith("local")
    if not local or len(tempfile.gettempdir()) > LONGEST_PARENT:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="tocsin-", ignore_cleanup_errors=True) as folder:
        yield {
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.python.unix.domain.socket.dir": folder,
        }
