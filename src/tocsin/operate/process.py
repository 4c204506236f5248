"""The process of a long-running program: signals that stop it, and its garbage collector.

Everything that a program loads at its start lives as long as the process. Searching it for garbage again and again
costs about one twentieth of the CPU and, with a large store, pauses. Cycles are rare in the routers' hot paths, so
young objects are collected less often as well.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""A terminal that is closed sends SIGHUP: the program then stops as gracefully as for the others."""


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Yields an event that any of `STOP_SIGNALS` sets, except for SIGHUP if it is ignored, as under `nohup`.

    Shells ignore SIGINT for programs in the background; we still obey it, because then somebody sends it on purpose.
    """
    requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    handled = [number for number in STOP_SIGNALS if number is not signal.SIGHUP or not ignored]
    for number in handled:
        loop.add_signal_handler(number, requested.set)
    try:
        yield requested
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


THRESHOLDS: Final = (20_000, 50, 50)


def freeze_loaded_objects() -> None:
    """Exclude everything loaded so far from garbage collection. Call it when the store is open."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
