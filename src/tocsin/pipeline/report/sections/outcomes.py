"""Reasons of failed and shed notifications, and what to do about them."""

from __future__ import annotations

from typing import Final

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.report.failure_reasons import advice_for
from tocsin.pipeline.report.figures import Figures, OutcomeCount
from tocsin.pipeline.report.markup import Markup, details, joined, section, table, tag
from tocsin.pipeline.report.svg import Plot, rect, responsive, text
from tocsin.pipeline.report.wording import count, share
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS

MOST: Final = 12
BAD_ENDS: Final = (Stage.FAILED, Stage.SHED)
ROW: Final = 30


def outcomes_section(figures: Figures) -> Markup:
    ends = [each for each in figures.period.outcomes if each.outcome in BAD_ENDS]
    meaning = "Notifications that the provider did not accept, by the reason that the NTF router recorded."
    if not ends:
        return section(
            "outcomes",
            "Outcome reasons",
            meaning,
            tag("p", "No notification failed or was shed.", class_="empty"),
        )
    due = figures.period.accounting.due
    rows = [(_name(each), count(each.n), share(each.n, due)) for each in ends]
    return section(
        "outcomes",
        "Outcome reasons",
        meaning,
        responsive(_plot(ends, due), lambda width: _draw(ends[:MOST], due, width)),
        details(
            "As a table",
            table(("end and reason", "notifications", "of those to deliver"), rows, caption="All reasons"),
        ),
        tag("h3", "What to do about them"),
        tag(
            "dl",
            *(joined([tag("dt", _name(each)), tag("dd", _advice(each))]) for each in ends),
            class_="advices",
        ),
    )


def _plot(ends: list[OutcomeCount], due: int) -> Plot:
    words = "; ".join(f"{_name(each)}: {count(each.n)} ({share(each.n, due)})" for each in ends[:MOST])
    return Plot("reasons", "Failed and shed notifications by reason", words)


def _draw(ends: list[OutcomeCount], due: int, width: int) -> tuple[float, Markup]:
    most = max(each.n for each in ends)
    wide = width > 500
    left, right, row = (190, 130, ROW) if wide else (0, 0, ROW + 16)
    shapes = []
    for number, each in enumerate(ends):
        top = number * row + (0 if wide else 16)
        part = max((width - left - right) * each.n / most, 1.5)
        figure = f"{count(each.n)} · {share(each.n, due)}"
        shapes.append(rect(left, top, part, 20, str(each.outcome), hint=f"{_name(each)}: {count(each.n)}"))
        if wide:
            shapes.append(text(left - 12, top + 14.5, _name(each), "ink", anchor="end"))
            shapes.append(text(left + part + 8, top + 14.5, figure, "strong"))
        else:
            shapes.append(text(0, top - 4, _name(each), "ink"))
            shapes.append(text(width, top - 4, figure, "strong", anchor="end"))
    return len(ends) * row, joined(shapes)


def _name(each: OutcomeCount) -> str:
    return f"{each.outcome}: {each.reason}" if each.reason else str(each.outcome)


def _advice(each: OutcomeCount) -> str:
    if each.outcome == Stage.SHED:
        return "The router was overloaded: give it more CPU, or add an instance."
    return "Rare reasons, counted together." if each.reason == SMALL_GROUPS else advice_for(each.reason)
