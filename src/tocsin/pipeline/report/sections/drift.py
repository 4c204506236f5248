"""Queues about which the routers disagree."""

from __future__ import annotations

from tocsin.pipeline.report.figures import Figures
from tocsin.pipeline.report.markup import Markup, section, table, tag
from tocsin.pipeline.report.wording import count, day_text


def drift_section(figures: Figures) -> Markup:
    meaning = (
        "Queues that only one of NTF router and SMP router considers subscribed. Their owners get no notifications, "
        "and nobody notices."
    )
    if figures.drift is None:
        unmeasured = tag(
            "p", "Not measured yet: run ", tag("code", "tocsin pipeline reconcile"), ".", class_="empty"
        )
        return section("drift", "Drift", meaning, unmeasured)
    when = f" Measured on {day_text(figures.drift_day)}." if figures.drift_day else ""
    if not figures.drift:
        agree = tag("p", tag("span", "none", class_="badge good"), f" The routers agree.{when}")
        return section("drift", "Drift", meaning, agree)
    rows = [(each.host, each.kind, count(each.queues)) for each in figures.drift]
    return section(
        "drift",
        "Drift",
        meaning + when,
        table(("SMP host", "kind", "queues"), rows, caption="Queues that differ"),
        bad="Apply the plan that `tocsin pipeline reconcile` wrote, with `tocsin ntf repair`. Drift that comes back "
        "means that a router loses commands.",
    )
