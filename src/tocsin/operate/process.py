"""The process of a long-running program: signals that stop it, its garbage collector, and its figures.

Everything that a program loads at its start lives as long as the process. Searching it for garbage again and again
costs about one twentieth of the CPU and, with a large store, pauses. Cycles are rare in the routers' hot paths, so
young objects are collected less often as well.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""A terminal that is closed sends SIGHUP: the program then stops as gracefully as for the others."""


THRESHOLDS: Final = (20_000, 50, 50)
_STARTED: Final = time.monotonic()
_PROC: Final = Path("/proc/self")


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


def freeze_loaded_objects() -> None:
    """Exclude everything loaded so far from garbage collection. Call it when the store is open."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def process_figures() -> dict[str, float]:
    """Return figures of time, memory and garbage collection by name, which includes the unit.

    Figures that this system lacks are left out.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures: dict[str, float] = {
        "uptime_seconds": round(time.monotonic() - _STARTED),
        "cpu_user_seconds": round(used.ru_utime, 2),
        "cpu_system_seconds": round(used.ru_stime, 2),
        # Kibibytes everywhere but on macOS (getrusage(2)).
        "peak_memory_bytes": used.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "context_switches_voluntary": used.ru_nvcsw,
        "context_switches_involuntary": used.ru_nivcsw,
        "threads": threading.active_count(),
    }
    if (_PROC / "statm").exists():
        pages = int((_PROC / "statm").read_text().split()[1])
        figures["resident_memory_bytes"] = pages * resource.getpagesize()
        figures["open_descriptors"] = len(os.listdir(_PROC / "fd"))
    for generation, (pending, done) in enumerate(zip(gc.get_count(), gc.get_stats(), strict=True)):
        figures[f"gc_generation_{generation}_pending"] = pending
        figures[f"gc_generation_{generation}_collections"] = done["collections"]
        figures[f"gc_generation_{generation}_collected"] = done["collected"]
    figures["gc_uncollectable"] = sum(done["uncollectable"] for done in gc.get_stats())
    return figures


def python_version() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"
