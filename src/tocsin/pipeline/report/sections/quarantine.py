"""Lines of the event logs that are no events."""

from __future__ import annotations

from tocsin.pipeline.lake.tables import QUARANTINE_TABLE
from tocsin.pipeline.report.figures import Figures
from tocsin.pipeline.report.markup import Markup, section, table, tag
from tocsin.pipeline.report.wording import count


def quarantine_section(figures: Figures) -> Markup:
    meaning = (
        "Lines of the routers' event logs that could not be read as events, in the last "
        f"{QUARANTINE_TABLE.retention_days} days. They are missing from everything above."
    )
    if not figures.quarantined:
        none = tag("p", tag("span", "none", class_="badge good"), " Every line was an event.")
        return section("quarantine", "Quarantined lines", meaning, none)
    rows = [(each.reason, count(each.lines), count(each.segments)) for each in figures.quarantined]
    return section(
        "quarantine",
        "Quarantined lines",
        meaning,
        table(("reason", "lines", "segments"), rows, caption="By the first check that they failed"),
        bad="“not version …”: a router is newer than this pipeline, update it. “not JSON”: a disk was full, or "
        "something else writes into the folder. The table `quarantine` names segment and hash of every line.",
    )
