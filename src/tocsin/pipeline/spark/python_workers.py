"""The first step of functions that run in Spark's Python processes."""

from __future__ import annotations

import gc

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
