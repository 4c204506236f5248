"""Answers as text and as JSON. They do not repeat pseudonyms, which the operator already has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.explain.chains import Chain, StatusChange
from tocsin.pipeline.explain.explanation import SECOND, DeliveryVerdict, Explanation, explanation
from tocsin.pipeline.explain.lookup import FoundEvents
from tocsin.pipeline.report.wording import duration

STYLES: Final[Mapping[DeliveryVerdict, str]] = {
    DeliveryVerdict.ARRIVED: "green",
    DeliveryVerdict.REPLACED: "cyan",
    DeliveryVerdict.WAITING: "yellow",
    DeliveryVerdict.LOST: "bold red",
}

ENGINE_NAMES: Final[Mapping[str, str]] = {"inline": "the router", "spark": "the job on Spark"}


@dataclass(frozen=True, slots=True)
class ExplainedNotification:
    """A notification and its explanation."""

    chain: Chain
    explanation: Explanation


def explain_found(found: FoundEvents) -> tuple[ExplainedNotification, ...]:
    """Explains every notification that was asked for, oldest first."""
    answers = []
    for chain in found.asked:
        own = [each for each in found.changes if each.of is Stage.TOKEN_CHANGED or each.queue == chain.queue]
        answers.append(
            ExplainedNotification(chain, explanation(chain, newer=next_of(chain, found.others), changes=own))
        )
    return tuple(answers)


def next_of(chain: Chain, others: Sequence[Chain]) -> Chain | None:
    """The next notification of the same queue that the NTF router received and that was not replaced, or the last."""
    own = chain.first(Stage.RECEIVED)
    if own is None:
        return None
    later = [
        (step.at, each)
        for each in others
        if each.queue == chain.queue and (step := each.first(Stage.RECEIVED)) and step.at > own.at
    ]
    for _, each in sorted(later, key=lambda pair: pair[0]):
        if each.first(Stage.SUPERSEDED) is None:
            return each
    return max(later, key=lambda pair: pair[0])[1] if later else None


def as_json(found: FoundEvents, answers: Sequence[ExplainedNotification]) -> dict[str, Any]:
    return {
        "job": "explain",
        "period": found.period,
        "verdicts": dict(Counter(str(each.explanation.verdict) for each in answers)),
        "notifications": [_json_of(each) for each in answers],
        "changes": [
            {
                "at": _iso(each.at),
                "of": "token" if each.of is Stage.TOKEN_CHANGED else "subscription",
                "router": each.router,
                "from": each.before,
                "to": each.after,
                "cause": each.cause,
            }
            for each in found.changes
        ],
    }


def _json_of(each: ExplainedNotification) -> dict[str, Any]:
    chain, why = each.chain, each.explanation
    return {
        "began_at": _iso(chain.began_at),
        "smp_host": chain.smp_host,
        "provider": chain.provider,
        "priority": chain.priority,
        "stopped_at": str(why.stopped_at),
        "verdict": str(why.verdict),
        "means": why.means,
        "to_do": why.to_do,
        "steps": [{**asdict(step), "at": _iso(step.at)} for step in chain.steps],
    }


def show(console: Console, found: FoundEvents, answers: Sequence[ExplainedNotification], most: int) -> None:
    """Prints the path of one notification, or a list of several and the path of the last that did not arrive."""
    if len(answers) == 1:
        console.print(_path(answers[0]), _reading(answers[0].explanation))
        return
    console.print(_list(answers[-most:], len(answers)))
    for change in found.changes[-most:]:
        console.print(_change(change), style="dim")
    stuck = [
        each
        for each in answers
        if each.explanation.verdict in (DeliveryVerdict.LOST, DeliveryVerdict.WAITING)
    ]
    if stuck:
        console.print("\nThe last one that did not arrive:", style="bold")
        console.print(_path(stuck[-1]), _reading(stuck[-1].explanation))


def _path(each: ExplainedNotification) -> Table:
    chain = each.chain
    host = f", SMP host {chain.smp_host}" if chain.smp_host else ""
    day = datetime.fromtimestamp(chain.began_at / SECOND, UTC)
    kind = f" ({chain.priority})" if chain.priority else ""
    table = Table(title=f"Notification of {day:%Y-%m-%d}{kind}{host}", title_justify="left")
    for name in ("time (UTC)", "after", "stage", "router", ""):
        table.add_column(name, justify="right" if name == "after" else "left")
    before: int | None = None
    for step in chain.steps:
        note = " ".join(
            [
                *([f"attempt {step.attempt}"] if step.stage is Stage.ATTEMPTED and step.attempt else []),
                step.reason,
                *([f"by {ENGINE_NAMES.get(step.engine, step.engine)}"] if step.engine else []),
            ]
        )
        after = "" if before is None else duration(step.at - before)
        table.add_row(_clock(step.at), after, Text(step.stage), Text(step.router), Text(note.strip()))
        before = step.at
    return table


def _reading(why: Explanation) -> Group:
    head = Text.assemble(
        (f"{why.verdict}", STYLES[why.verdict]), f", stopped at “{why.stopped_at}”. ", why.means
    )
    return Group(head, Text.assemble(("What to do: ", "bold"), why.to_do))


def _list(answers: Sequence[ExplainedNotification], number: int) -> Table:
    counts = Counter(each.explanation.verdict for each in answers)
    summary = ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items()))
    title = f"{number} notifications, the last {len(answers)}: {summary}" if answers else "no notifications"
    table = Table(title=title, title_justify="left")
    for name in ("began (UTC)", "SMP host", "took", "stopped at", "verdict"):
        table.add_column(name, justify="right" if name == "took" else "left")
    for each in answers:
        verdict = each.explanation.verdict
        took = max(step.at for step in each.chain.steps) - each.chain.began_at
        table.add_row(
            _clock(each.chain.began_at),
            Text(each.chain.smp_host),
            duration(took),
            Text(each.explanation.stopped_at),
            Text(verdict, STYLES[verdict]),
        )
    return table


def _change(change: StatusChange) -> Text:
    what = "token" if change.of is Stage.TOKEN_CHANGED else "subscription"
    before = f"from {change.before} " if change.before else ""
    cause = f", by {change.cause}" if change.cause else ""
    return Text(f"{_clock(change.at)}  {what} {before}to {change.after or 'deleted'}{cause}")


def _clock(at: int) -> str:
    return f"{datetime.fromtimestamp(at / SECOND, UTC):%H:%M:%S.%f}"[:-3]


def _iso(at: int) -> str:
    return datetime.fromtimestamp(at / SECOND, UTC).isoformat(timespec="microseconds")
