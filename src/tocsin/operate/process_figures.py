"""Figures of this process from the system and from Python: time, memory, garbage collection."""

from __future__ import annotations

import gc
import os
import platform
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Final

_STARTED: Final = time.monotonic()
_PROC: Final = Path("/proc/self")


def process_figures() -> dict[str, float]:
    """Figures by name, which includes the unit. Figures that this system lacks are left out."""
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
