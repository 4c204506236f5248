"""How far notifications came on their path from the SMP router to the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.report.figures import Figures, ReportPeriod
from tocsin.pipeline.report.markup import Markup, details, joined, section, table, tag
from tocsin.pipeline.report.svg import Plot, polygon, rect, responsive, text
from tocsin.pipeline.report.wording import count, share

PATH: Final = (
    (Stage.ENQUEUED, "SMP router has it"),
    (Stage.SENT, "SMP router sent it"),
    (Stage.RECEIVED, "NTF router received it"),
    (Stage.ATTEMPTED, "a push was tried"),
    (Stage.ACCEPTED, "the provider accepted it"),
    (Stage.WOKEN, "the device woke"),
    (Stage.FETCHED, "the message was fetched"),
)
EXITS: Final = {
    Stage.EXPIRED: "no NTF router subscribed in time",
    Stage.DROPPED: "its queue or notifier was deleted, or too many were waiting",
    Stage.UNKNOWN_QUEUE: "the NTF router does not know the queue",
    Stage.SUPERSEDED: "replaced by a newer notification",
    Stage.FAILED: "the NTF router gave up",
    Stage.SHED: "dropped under load",
}
ON_DEVICES: Final = (Stage.WOKEN, Stage.FETCHED)
ROW: Final = 46
BAR: Final = 26


def funnel_section(figures: Figures) -> Markup:
    period = figures.period
    first = next((period.stages[stage] for stage, _ in PATH if period.stages[stage]), 0)
    rows = [
        (str(stage), count(period.stages[stage]), share(period.stages[stage], first), words)
        for stage, words in PATH
    ]
    side = [(str(stage), count(period.stages[stage]), words) for stage, words in EXITS.items()]
    return section(
        "funnel",
        "Delivery funnel",
        "The number of notifications that reached each stage, with percentages of the stage before. Superseded "
        "notifications leave the path on purpose: the newer one covers them. Only devices whose users agreed report "
        "that they woke.",
        responsive(_plot(period), lambda width: _draw(period, width)),
        table(
            ("left the path", "notifications", "meaning"),
            side,
            caption="Notifications that left the path",
            words=frozenset({2}),
        ),
        _redelivered(period),
        details(
            "As a table",
            table(
                ("stage", "notifications", "of the first", "meaning"),
                rows,
                caption="Stages",
                words=frozenset({3}),
            ),
        ),
        bad="A drop from sent to received means a lost connection, or queues that the NTF router does not know. A drop "
        "from enqueued to sent means that no NTF router is subscribed: run `tocsin pipeline reconcile`. To follow a "
        "single notification, run `tocsin pipeline explain`. Many redelivered: connections between routers break.",
    )


def _redelivered(period: ReportPeriod) -> Markup:
    sums = period.accounting
    if not sums.redelivered:
        return tag("p", "Redelivered: none. Every notification was received once.")
    return tag(
        "p",
        tag("strong", f"Redelivered: {count(sums.redelivered)}"),
        f" ({share(sums.redelivered, sums.received)} of those received). The SMP router sent them again because it was "
        "not sure that the NTF router had them: a connection broke, or a router was restarted. Each is counted once, "
        "by its best end. A device may have received two pushes for the same message, which does no harm.",
    )


@dataclass(frozen=True, slots=True)
class _Bar:
    stage: Stage
    words: str
    number: int
    kept: str
    """Share of the stage before. Only devices whose users agreed report that they woke."""


def shown(period: ReportPeriod) -> list[_Bar]:
    """Stages with events. Other operators' SMP routers and silent devices write none."""
    bars: list[_Bar] = []
    for stage, words in PATH:
        if number := period.stages[stage]:
            kept = share(number, bars[-1].number) if bars else ""
            bars.append(_Bar(stage, words, number, "opted in" if stage is Stage.WOKEN else kept))
    return bars


def _plot(period: ReportPeriod) -> Plot:
    stages = [f"{bar.stage} {count(bar.number)}" for bar in shown(period)]
    return Plot("funnel-plot", "Notifications by stage", ", then ".join(stages) or "none")


def _draw(period: ReportPeriod, width: int) -> tuple[float, Markup]:
    bars = shown(period)
    most = max((bar.number for bar in bars), default=1)
    wide = width > 500
    left, right = (190, 96) if wide else (0, 0)
    row = ROW if wide else ROW + 18
    room = width - left - right
    shapes: list[Markup] = []
    before: tuple[float, float] | None = None
    for position, bar in enumerate(bars):
        top = position * row + (0 if wide else 18)
        part = max(room * bar.number / most, 1.5)
        if before is not None:
            ends = [(left, before[1]), (left + before[0], before[1]), (left + part, top), (left, top)]
            shapes.append(polygon(ends, "cone"))
        colour = "second" if bar.stage in ON_DEVICES else "accepted"
        shapes.append(rect(left, top, part, BAR, colour, hint=f"{bar.stage}: {count(bar.number)}"))
        shapes += _labels(bar, top, left, room) if wide else _labels_above(bar, top, room)
        before = (part, top + BAR)
    return max(len(bars) - 1, 0) * row + BAR + (2 if wide else 20), joined(shapes)


def _labels(bar: _Bar, top: float, left: float, room: float) -> list[Markup]:
    return [
        text(left - 12, top + 17.5, bar.words, "ink", anchor="end"),
        text(left + room + 10, top + 12, count(bar.number), "strong"),
        text(left + room + 10, top + 26, bar.kept, "small"),
    ]


def _labels_above(bar: _Bar, top: float, room: float) -> list[Markup]:
    figure = f"{count(bar.number)} · {bar.kept}" if bar.kept else count(bar.number)
    return [text(0, top - 5, bar.words, "ink"), text(room, top - 5, figure, "strong", anchor="end")]
