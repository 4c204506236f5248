"""Accounts for every received notification, and shows when notifications were received."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from tocsin.pipeline.report.figures import DeliveryAccount, Figures, Hour
from tocsin.pipeline.report.markup import Markup, details, joined, section, table, tag
from tocsin.pipeline.report.svg import Plot, Scale, count_axis, legend, rect, responsive, text
from tocsin.pipeline.report.verdict import ALL_IS_WELL, MEANINGS, DeliveryLosses, headline
from tocsin.pipeline.report.wording import count, day_text, share, short_count

TERMS: Final = {
    "accepted": "the provider accepted the push",
    "superseded": "a newer notification of the same queue replaced it before it was pushed",
    "failed": "the router gave up, for a reason",
    "shed": "dropped under load, on purpose",
    "pending": "no outcome yet",
}
HOURS_OF_BARS: Final = 24 * 14
"""In longer ranges, a bar is a day."""


def accounting_section(figures: Figures) -> Markup:
    sums = figures.period.accounting
    rows = [(name, count(getattr(sums, name)), share(getattr(sums, name), sums.received)) for name in TERMS]
    rows.append(("difference", count(sums.difference), share(abs(sums.difference), sums.received)))
    return section(
        "accounting",
        "Accounting",
        "Every notification that an NTF router received has exactly one end, or is pending. None may be pending for "
        "long, and each one that an SMP router sent must arrive.",
        _equation(sums),
        _verdict(sums, figures),
        _not_accounted_for(figures.losses),
        _whole(sums),
        over_time(figures),
        details(
            "As a table",
            table(("end", "notifications", "of received"), rows, caption="Ends of notifications"),
        ),
        bad="A difference means a bug or lost events: look for a full disk under a router's event log, then at the "
        "hosts named above. Many pending: check that the router is running and reaches the provider. Shed: the "
        "router is overloaded; give it more CPU, or add an instance.",
    )


def _equation(sums: DeliveryAccount) -> Markup:
    first = tag("li", _term("received", sums.received, ""))
    rest = [
        tag(
            "li",
            tag("span", "=" if number == 0 else "+", class_="op"),
            _term(name, getattr(sums, name), name),
        )
        for number, name in enumerate(TERMS)
    ]
    alarm = " alarm" if sums.difference else ""
    last = tag("li", tag("span", "+", class_="op"), _term("difference", sums.difference, "difference", alarm))
    return tag("ul", first, *rest, last, class_="equation")


def _term(name: str, number: int, colour: str, extra: str = "") -> Markup:
    style = f"--c:var(--{colour})" if colour else None
    return tag("div", tag("b", count(number)), tag("span", name), class_=f"term{extra}", style=style)


def _verdict(sums: DeliveryAccount, figures: Figures) -> Markup:
    if not sums.difference and not sums.ends_twice and not sums.ends_unreceived:
        return tag("p", tag("span", "adds up", class_="badge good"), " The terms add up to those received.")
    hosts = sorted({each.host for each in figures.host_hours if each.difference})
    named = f" SMP hosts: {', '.join(hosts[:8])}{' …' if len(hosts) > 8 else ''}." if hosts else ""
    badge = "does not add up" if sums.difference else "check"
    return tag(
        "p",
        tag("span", badge, class_="badge bad"),
        f" Notifications with two ends: {count(sums.ends_twice)}. With an end but never received: "
        f"{count(sums.ends_unreceived)}.{named}",
    )


def _not_accounted_for(losses: DeliveryLosses) -> Markup:
    """The terms add up even if every outcome is lost, since then all are pending. This says what is missing."""
    found = losses.found()
    if not found:
        return tag("p", tag("span", "complete", class_="badge good"), f" {ALL_IS_WELL}")
    rows = [(name.replace("_", " "), count(number), *MEANINGS[name]) for name, number in found.items()]
    return joined(
        [
            tag("p", tag("span", "incomplete", class_="badge bad"), f" {headline(losses)}"),
            table(
                ("kind", "notifications", "meaning", "what to do"),
                [(kind, number, meaning, todo.replace("`", "")) for kind, number, meaning, todo in rows],
                caption="Notifications that are not accounted for",
                words=frozenset({2, 3}),
            ),
        ]
    )


def _whole(sums: DeliveryAccount) -> Markup:
    parts = [(name, getattr(sums, name)) for name in TERMS]
    parts.append(("difference", max(sums.difference, 0)))
    whole = sum(number for _, number in parts) or 1
    plot = Plot(
        "whole",
        f"Ends of {short_count(sums.received)} received notifications",
        "; ".join(f"{name} {share(number, whole)}" for name, number in parts),
    )

    def draw(width: int) -> tuple[float, Markup]:
        shapes, x = [], 0.0
        for name, number in parts:
            part = width * number / whole
            if number:
                hint, label = (
                    f"{name}: {count(number)} ({share(number, whole)})",
                    f"{name} {share(number, whole)}",
                )
                shapes.append(rect(x, 0, max(part - 1, 0.8), 26, name, hint=hint))
                if part > 8 * len(label) + 8:
                    shapes.append(text(x + 8, 17.5, label, "on"))
            x += part
        return 26, joined(shapes)

    return responsive(plot, draw)


def over_time(figures: Figures) -> Markup:
    """One bar per hour, or per day for long ranges."""
    bars, unit = _bars(figures)
    most = max((each.accounting.received for each in bars), default=0)
    lost = sum(each.accounting.failed + each.accounting.shed for each in bars)
    plot = Plot(
        "time",
        f"Notifications received per {unit}, and those that failed or were shed",
        f"From {day_text(figures.period.days.first)} to {day_text(figures.period.days.last)}, at most "
        f"{count(most)} in one {unit}. {count(lost)} failed or were shed.",
    )

    def draw(width: int) -> tuple[float, Markup]:
        left, top, bottom = 44, 8, 128
        y, axis = count_axis(most, left, top, bottom, width, short_count)
        each_width = (width - left) / len(bars)
        shapes = [axis]
        for number, bar in enumerate(bars):
            shapes.append(_bar(bar, left + number * each_width, each_width, y, unit))
        shapes += _day_names(bars, left, each_width, bottom + 18, width)
        return bottom + 24, joined(shapes)

    names = {"accepted": "received, with other ends", "failed": "failed or shed"}
    return joined([responsive(plot, draw), legend(names)])


def _bar(bar: Hour, x: float, width: float, y: Scale, unit: str) -> Markup:
    sums = bar.accounting
    lost = sums.failed + sums.shed
    inner = max(width - (1 if width > 3 else 0.2), 0.6)
    when = f"{bar.at:%a %d %b %H:00}" if unit == "hour" else f"{bar.at:%a %d %b}"
    hint = f"{when}: {count(sums.received)} received, {count(lost)} failed or shed"
    top, base = y(sums.received), y(0)
    return joined(
        [
            rect(x, top, inner, base - top, "accepted", hint=hint),
            rect(x, y(lost), inner, base - y(lost), "failed", hint=hint),
        ]
    )


def _bars(figures: Figures) -> tuple[list[Hour], str]:
    """Bars without gaps: hours without notifications have height 0."""
    days = figures.period.days
    start = datetime.combine(days.first, datetime.min.time(), tzinfo=figures.made_at.tzinfo)
    if days.number * 24 <= HOURS_OF_BARS:
        known = {each.at: each for each in figures.hours}
        times = [start + timedelta(hours=number) for number in range(days.number * 24)]
        return [known.get(at, Hour(at, DeliveryAccount())) for at in times], "hour"
    sums: dict[datetime, DeliveryAccount] = {
        start + timedelta(days=number): DeliveryAccount() for number in range(days.number)
    }
    for hour in figures.hours:
        day = hour.at.replace(hour=0)
        old, new = sums[day], hour.accounting
        sums[day] = DeliveryAccount(
            **{name: getattr(old, name) + getattr(new, name) for name in DeliveryAccount.__dataclass_fields__}
        )
    return [Hour(at, each) for at, each in sums.items()], "day"


def _day_names(bars: list[Hour], left: float, width: float, y: float, whole: float) -> list[Markup]:
    """Labels under the first bar of days, as many as fit; hours if all bars belong to one day."""
    if len(bars) == 24:
        return [text(left + number * width, y, f"{number:02d}:00") for number in (0, 6, 12, 18)]
    starts = [(number, bar.at) for number, bar in enumerate(bars) if bar.at.hour == 0]
    every = -(-len(starts) * 52 // int(whole - left)) or 1
    return [text(left + number * width, y, f"{at:%d %b}".lstrip("0")) for number, at in starts[::every]]
