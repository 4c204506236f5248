"""The report page: heading, figures at a glance, and all sections."""

from __future__ import annotations

from typing import Final

from tocsin.pipeline.report.document import document, tile
from tocsin.pipeline.report.figures import Figures
from tocsin.pipeline.report.markup import Markup, tag
from tocsin.pipeline.report.sections.accounting import accounting_section
from tocsin.pipeline.report.sections.drift import drift_section
from tocsin.pipeline.report.sections.engines import engines_section
from tocsin.pipeline.report.sections.funnel import funnel_section
from tocsin.pipeline.report.sections.heat_maps import heat_section
from tocsin.pipeline.report.sections.latency import WHOLE_PATH, latency_section
from tocsin.pipeline.report.sections.outcomes import outcomes_section
from tocsin.pipeline.report.sections.quarantine import quarantine_section
from tocsin.pipeline.report.sections.servers import servers_section
from tocsin.pipeline.report.sections.tokens import tokens_section
from tocsin.pipeline.report.sections.week import range_text, week_section
from tocsin.pipeline.report.verdict import headline
from tocsin.pipeline.report.wording import count, duration, plural, share, short_count

SECTIONS: Final = {
    "week": ("Changes", week_section),
    "accounting": ("Accounting", accounting_section),
    "funnel": ("Funnel", funnel_section),
    "latency": ("Latency", latency_section),
    "engines": ("Engines", engines_section),
    "heat": ("Hours and hosts", heat_section),
    "tokens": ("Tokens", tokens_section),
    "outcomes": ("Reasons", outcomes_section),
    "servers": ("SMP hosts", servers_section),
    "drift": ("Drift", drift_section),
    "quarantine": ("Quarantine", quarantine_section),
}


def report_page(figures: Figures) -> str:
    links = [tag("li", tag("a", name, href=f"#{key}")) for key, (name, _) in SECTIONS.items()]
    navigation = tag("nav", tag("ul", *links), aria_label="Sections of the report")
    sections = [render(figures) for _, render in SECTIONS.values()]
    return document(
        f"Delivery report, {range_text(figures.period.days)}",
        tag("header", *_heading(figures), _tiles(figures), navigation),
        tag("main", *sections, id="main"),
        _footer(figures),
    )


def _heading(figures: Figures) -> list[Markup]:
    days = figures.period.days
    length = plural(days.number, "day")
    made = f"{figures.made_at:%Y-%m-%d %H:%M} UTC"
    built = f"{figures.built_at:%Y-%m-%d %H:%M} UTC"
    return [
        tag("h1", "Delivery report"),
        tag("p", tag("strong", range_text(days)), f" · {length}, UTC", class_="when"),
        tag("p", f"Created {made} from tables built {built}", class_="when"),
        tag("p", headline(figures.losses), class_="verdict bad" if figures.losses.total else "verdict"),
    ]


def _tiles(figures: Figures) -> Markup:
    sums = figures.period.accounting
    span = next((each for name in WHOLE_PATH for each in figures.period.spans if each.name == name), None)
    lost = sums.failed + sums.shed
    tiles = [
        tile("Received", short_count(sums.received), f"notifications, {short_count(sums.due)} to deliver"),
        tile("Accepted", share(sums.accepted, sums.due), "of those not superseded"),
        tile("Lost", share(lost, sums.due), f"{count(sums.failed)} failed, {count(sums.shed)} shed"),
        tile("Median", duration(span.at(0.5)) if span else "–", span.name if span else "no latencies"),
        tile("p99", duration(span.at(0.99)) if span else "–", "one in a hundred takes longer"),
        tile(
            "Unaccounted for",
            count(max(figures.losses.total, abs(sums.difference))),
            "notifications: see Accounting"
            if figures.losses.total or sums.difference
            else "nothing is missing",
            alarm=bool(figures.losses.total or sums.difference),
        ),
    ]
    return tag("dl", *tiles, class_="tiles")


def _footer(figures: Figures) -> Markup:
    days = figures.period.days
    command = f"tocsin pipeline report --from {days.first} --to {days.last}"
    return tag(
        "footer",
        tag(
            "p",
            "Create it again with ",
            tag("code", command),
            ". The CSV files beside this page have the same figures.",
        ),
        tag(
            "p",
            "This page contains only counts: no identifiers, no pseudonyms, and no name of an SMP host for hours in "
            f"which fewer than {figures.smallest_group} devices used it.",
        ),
    )
