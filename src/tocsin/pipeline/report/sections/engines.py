"""Which engine pushed: the routers themselves, or the job on Spark."""

from __future__ import annotations

from typing import Final

from tocsin.pipeline.report.figures import ENGINE_RANKS, EngineCount, Figures
from tocsin.pipeline.report.markup import Markup, section, table, tag
from tocsin.pipeline.report.wording import count, duration, share
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS

NAMES: Final = {
    "inline": "the NTF router (inline)",
    "spark": "the job on Spark",
    SMALL_GROUPS: "engines of few devices, counted together",
    "": "not pushed, or not named",
}
COLUMNS: Final = ("engine", "accepted", "failed", *(f"p{rank * 100:.0f}" for rank in ENGINE_RANKS))


def engines_section(figures: Figures) -> Markup:
    meaning = "Notifications by the engine that pushed them, and the time from receipt to the provider's acceptance."
    engines = figures.period.engines
    if not engines:
        return section("engines", "Engines", meaning, tag("p", "No notification was pushed.", class_="empty"))
    bad = "a page says when to choose which engine: docs/explanation/which-engine.md."
    rows = table(COLUMNS, [_row(each) for each in engines], caption="By engine")
    return section("engines", "Engines", meaning, rows, bad=bad)


def _row(each: EngineCount) -> tuple[str, ...]:
    whole = each.accepted + each.failed
    times = [duration(us) for us in each.us] or ["–"] * len(ENGINE_RANKS)
    failed = f"{count(each.failed)} ({share(each.failed, whole)})"
    return NAMES.get(each.engine, each.engine), count(each.accepted), failed, *times
