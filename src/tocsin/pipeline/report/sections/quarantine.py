"""Lines of event logs that are not valid events."""

from __future__ import annotations

from tocsin.pipeline.report.figures import Figures
from tocsin.pipeline.report.markup import Markup, section, table, tag
from tocsin.pipeline.report.wording import count, plural


def quarantine_section(figures: Figures) -> Markup:
    meaning = (
        "Lines of the routers' event logs that are not valid events, of all days that the table `quarantine` has. They "
        "are missing from all figures above."
    )
    late = _late(figures.late_events)
    if not figures.quarantined:
        none = tag("p", tag("span", "none", class_="badge good"), " Every line was a valid event.")
        return section("quarantine", "Quarantined lines", meaning, none, late)
    rows = [(each.reason, count(each.lines), count(each.segments)) for each in figures.quarantined]
    return section(
        "quarantine",
        "Quarantined lines",
        meaning,
        table(("reason", "lines", "segments"), rows, caption="Lines by the first check that failed"),
        late,
        bad="“not version …”: a router is newer than this pipeline; update the pipeline. “not JSON”: a disk was full, "
        "or another program writes to the folder. “time ahead”: a router's clock is wrong. After an upgrade, "
        "`tocsin pipeline reread` reads them again. The table `quarantine` has segment and hash of every line.",
    )


def _late(events: int) -> Markup:
    if not events:
        return Markup("")
    return tag(
        "p",
        tag("span", "late", class_="badge plain"),
        f" {plural(events, 'event')} arrived after the rows of their day had expired. No table counts them.",
    )
