"""The content of the card `Who pushes`: both engines, the job on Spark, and the tables as they grow. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tocsin.web.figure_texts import Level

INLINE: Final = "inline"
SPARK: Final = "spark"
TITLES: Final = {INLINE: "The NTF router itself", SPARK: "The job on Spark"}
PHASES: Final[dict[str, tuple[str, Level, str]]] = {
    "off": ("off", Level.PLAIN, "It was not started: `--engine both` starts it."),
    "starting": (
        "starting",
        Level.LOOK,
        "Spark takes some seconds to start. Until it is ready, the router pushes to all phones.",
    ),
    "pushing": (
        "pushing",
        Level.GOOD,
        "Each phone below says who pushes to it, and each message who pushed it. Change it there.",
    ),
    "late": (
        "late",
        Level.LOOK,
        "It does not answer in time. The router pushes to all phones until it does.",
    ),
    "gone": ("gone, restarting", Level.BAD, "The router pushes to all phones until the job is back."),
}
"""The state of the job: a word, whether it is good, and what it means for phones."""
FACTS: Final[Mapping[str, tuple[str, str]]] = {
    "batches": ("batches", ""),
    "batch_ms": ("newest batch took", "ms"),
    "rows_per_second": ("rows per second", ""),
    "accepted": ("pushes accepted", ""),
    "waiting": ("waiting in its state", ""),
    "state_rows": ("rows of state", ""),
    "state_bytes": ("size of state", "bytes"),
    "watermark": ("watermark", "time"),
    "taken_until": ("has taken all until", "time"),
}
"""Figures of the job's status that are shown if it has them: label and unit."""


def engines_view(
    pushes: Mapping[str, int],
    seconds: Mapping[str, float | None],
    *,
    phase: str,
    restarts: int,
    figures: Mapping[str, Any],
    page: str,
    tables: Sequence[tuple[str, int]],
) -> dict[str, Any]:
    """`pushes` and `seconds`: by engine, as the push provider saw them, and the usual time from message to push."""
    word, level, meaning = PHASES[phase]
    facts = [
        {"key": key, "label": label, "value": figures[key], "unit": unit}
        for key, (label, unit) in FACTS.items()
        if key in figures
    ]
    return {
        "engines": [
            {"key": key, "title": title, "pushes": pushes.get(key, 0), "seconds": seconds.get(key)}
            for key, title in TITLES.items()
        ],
        "job": {
            "phase": phase,
            "word": f"{word}, restarted {restarts}×" if restarts else word,
            "level": level,
            "meaning": meaning,
            "facts": facts,
            "page": page if phase in ("pushing", "late") else "",
        },
        "tables": [{"name": name, "rows": rows} for name, rows in tables],
    }
