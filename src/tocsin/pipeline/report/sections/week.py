"""Changes since the same days of the weeks before."""

from __future__ import annotations

from tocsin.pipeline.report.changes import ReportedChange, changes
from tocsin.pipeline.report.figures import Days, Figures
from tocsin.pipeline.report.markup import Markup, section, tag
from tocsin.pipeline.report.wording import day_text


def week_section(figures: Figures) -> Markup:
    title = "What changed since last week" if figures.period.days.number <= 7 else "What changed"
    earlier = range_text(figures.period.days.before())
    if figures.before is None:
        nothing = tag("p", f"Nothing to compare with: the tables have no rows of {earlier}.", class_="empty")
        return section("week", title, "Compared with the same days of earlier weeks.", nothing)
    found = changes(figures.period, figures.before)
    content = (
        tag("ul", *map(_item, found), class_="changes")
        if found
        else tag("p", tag("span", "steady", class_="badge good"), " No change beyond chance.")
    )
    return section(
        "week",
        title,
        f"Compared with {earlier}. Changes that chance explains, or that are too small to matter, are not shown.",
        content,
    )


def _item(change: ReportedChange) -> Markup:
    word, kind = {True: ("better", "good"), False: ("worse", "bad"), None: ("other", "plain")}[change.better]
    return tag("li", tag("span", word, class_=f"badge {kind}"), f" {change.text}")


def range_text(days: Days) -> str:
    if days.number == 1:
        return day_text(days.first)
    return f"{day_text(days.first)} to {day_text(days.last)}"
