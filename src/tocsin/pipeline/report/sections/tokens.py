"""Tokens: how many devices could be reached, and why tokens stop working."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import date
from typing import Final

from tocsin.pipeline.report.figures import Days, Figures
from tocsin.pipeline.report.markup import Markup, details, joined, section, table, tag
from tocsin.pipeline.report.svg import Plot, count_axis, legend, rect, responsive, text
from tocsin.pipeline.report.wording import count, day_text, share, short_count
from tocsin.pipeline.transforms.tokens import DEAD, PUSHED

CHANGES: Final = {
    "REGISTERED": "new tokens",
    "CONFIRMED": "the provider accepted the verification push",
    "ACTIVE": "the device returned the code",
    "INVALID": "the provider refused the token",
    "EXPIRED": "the token expired",
    "DELETED": "the device deleted it",
}
Counts = Mapping[tuple[date, str], int]


def tokens_section(figures: Figures) -> Markup:
    days = figures.period.days
    counts: dict[tuple[date, str], int] = defaultdict(int)
    for each in figures.tokens:
        counts[each.day, each.change] += each.tokens
    if not counts:
        nothing = tag(
            "p",
            f"No day of this range has {figures.smallest_group} tokens with the same change.",
            class_="empty",
        )
        return section("tokens", "Tokens", "How many devices could be reached.", nothing)
    return section(
        "tokens",
        "Tokens",
        "How many devices could be reached each day: of all tokens with pushes, those with at least one accepted push. "
        "Days cannot be added up, since a token has another pseudonym each day, on purpose. "
        f"Counts below {figures.smallest_group} are not shown.",
        _survival(days, counts),
        _changes_table(days, counts),
        _invalid_reasons(figures),
        bad="Tokens that die after an app update point to a wrong topic or environment (INVALID with TOPIC or BAD). "
        "UNREGISTERED: the app was removed. Many REGISTERED but few ACTIVE: verification pushes do not arrive.",
    )


def _survival(days: Days, counts: Counts) -> Markup:
    pairs = [(day, counts.get((day, PUSHED), 0), counts.get((day, DEAD), 0)) for day in days.each()]
    most = max((pushed + dead for _, pushed, dead in pairs), default=0)
    plot = Plot(
        "survival",
        "Tokens with pushes per day: reached, and dead (no push accepted that day)",
        "; ".join(
            f"{day_text(day)}: {share(p, p + d)} of {count(p + d)} reached" for day, p, d in pairs if p + d
        ),
    )

    def draw(width: int) -> tuple[float, Markup]:
        left, top, bottom = 44, 22, 150
        y, axis = count_axis(most, left, top, bottom, width, short_count)
        each = (width - left) / len(pairs)
        shapes = [axis]
        every = -(-len(pairs) * 50 // int(width - left)) or 1
        bar = min(each * 0.72, 64)
        for number, (day, pushed, dead) in enumerate(pairs):
            x = left + number * each + (each - bar) / 2
            hint = f"{day_text(day)}: {count(pushed)} reached, {count(dead)} dead"
            shapes.append(rect(x, y(pushed), bar, bottom - y(pushed), "accepted", hint=hint))
            shapes.append(
                rect(x, y(pushed + dead), bar, y(pushed) - y(pushed + dead) - 1, "failed", hint=hint)
            )
            if number % every == 0:
                middle = x + bar / 2
                shapes.append(text(middle, bottom + 17, f"{day.day} {day:%b}", anchor="middle"))
                if pushed + dead:
                    reached = share(pushed, pushed + dead)
                    shapes.append(
                        text(middle, y(pushed + dead) - 6, reached, "strong small", anchor="middle")
                    )
        return bottom + 22, joined(shapes)

    return joined([responsive(plot, draw), legend({"accepted": "reached", "failed": "dead"})])


def _changes_table(days: Days, counts: Counts) -> Markup:
    shown = [PUSHED, DEAD, *(name for name in CHANGES if any(change == name for _, change in counts))]
    rows = [
        (day_text(day), *(count(counts.get((day, name), 0)) for name in shown))
        for day in reversed(days.each())
        if any(counts.get((day, name)) for name in shown)
    ]
    return details(
        "All days, with status changes",
        table(("day", *shown), rows, caption="Tokens per day"),
    )


def _invalid_reasons(figures: Figures) -> Markup:
    """The worst day of each reason, since days cannot be added up."""
    worst: dict[tuple[str, str], tuple[int, date]] = {}
    for each in figures.tokens:
        if (
            each.change in ("INVALID", DEAD)
            and each.tokens > worst.get((each.change, each.reason), (0, each.day))[0]
        ):
            worst[each.change, each.reason] = (each.tokens, each.day)
    if not worst:
        return Markup("")
    rows = [
        (f"{change} · {reason or 'no reason given'}", count(tokens), day_text(day))
        for (change, reason), (tokens, day) in sorted(worst.items(), key=lambda item: (-item[1][0], item[0]))
    ]
    return joined(
        [
            tag("h3", "Why tokens stop working"),
            table(("status and reason", "most tokens", "on"), rows, caption="Worst day of each reason"),
        ]
    )
