from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from tests.unit.pipeline.explain.test_explanation import NTF, TRIED, chain
from tests.unit.pipeline.sample_events import NOON, PERIOD
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.explain.answers import as_json, explain_found, next_of, show
from tocsin.pipeline.explain.chains import EventRow, chains_of, changes_of
from tocsin.pipeline.explain.lookup import FoundEvents


def row(stage: Stage, at: int, **values: object) -> EventRow:
    usual: dict[str, object] = {
        "period": PERIOD,
        "stage": str(stage),
        "at": NOON + at,
        "router": "r",
        "notification_high": 1,
        "notification_low": 2,
        "queue": None,
        "smp_host": "",
        "provider": "",
        "priority": "",
        "reason": "",
        "attempt": 0,
        "engine": "",
        "from_status": "",
        "to_status": "",
        "cause": "",
    }
    return EventRow(**{**usual, **values})  # type: ignore[typeddict-item]


def test_the_path_names_the_engine_of_each_push() -> None:
    found = chains_of(
        [
            row(Stage.RECEIVED, 1),
            row(Stage.ATTEMPTED, 2, engine="inline"),
            row(Stage.ATTEMPTED, 3, attempt=1, engine="spark"),
            row(Stage.ACCEPTED, 4, attempt=1, engine="spark"),
        ]
    )
    assert [step.engine for step in found[0].steps] == ["", "inline", "spark", "spark"]
    text = io.StringIO()
    events = FoundEvents(PERIOD, found, found, ())
    show(Console(file=text, width=120), events, explain_found(events), 5)
    assert "by the router" in text.getvalue()
    assert "attempt 1  by the job on Spark" in text.getvalue()


def test_events_in_any_order_and_repeated_are_one_way() -> None:
    rows = [
        row(Stage.ACCEPTED, 50, provider="apns_prod", queue=7),
        row(Stage.ATTEMPTED, 40, attempt=2),
        row(Stage.ATTEMPTED, 30, attempt=1),
        row(Stage.ATTEMPTED, 35, attempt=1),
        row(Stage.SENT, 10, smp_host="smp1.example", priority=None),
        row(Stage.ENQUEUED, 5, priority="mention"),
    ]
    [one] = chains_of(rows)
    assert one.priority == "mention"
    assert [(step.stage, step.at - NOON) for step in one.steps] == [
        (Stage.ENQUEUED, 5),
        (Stage.SENT, 10),
        (Stage.ATTEMPTED, 30),
        (Stage.ATTEMPTED, 40),
        (Stage.ACCEPTED, 50),
    ]
    assert (one.queue, one.smp_host, one.provider, one.attempts) == (7, "smp1.example", "apns_prod", 2)
    assert chains_of(reversed(rows)) == (one,)


def test_notifications_are_told_apart_and_sorted_by_time() -> None:
    found = chains_of(
        [row(Stage.SENT, 9), row(Stage.SENT, 3, notification_low=3), row(Stage.SENT, 5, period="1-00000000")]
    )
    assert [each.began_at - NOON for each in found] == [3, 5, 9]


def test_changes_are_no_notifications() -> None:
    changed = row(
        Stage.TOKEN_CHANGED, 4, notification_high=None, notification_low=None, to_status="INVALID,BAD"
    )
    assert chains_of([changed]) == ()
    [change] = changes_of([changed, changed, row(Stage.SENT, 1)])
    assert (change.of, change.after) == (Stage.TOKEN_CHANGED, "INVALID,BAD")


def test_the_one_that_replaced_it_is_the_next_that_was_not_replaced_itself() -> None:
    old, between = chain(*NTF, Stage.SUPERSEDED), chain(*NTF, Stage.SUPERSEDED, at=NOON + 100)
    last, later = chain(*TRIED, Stage.ACCEPTED, at=NOON + 200), chain(*TRIED, at=NOON + 300)
    assert next_of(old, [later, last, between, old]) == last
    assert next_of(old, [old, between]) == between
    assert next_of(last, [old, last]) is None
    assert next_of(chain(Stage.SENT), [last]) is None


def test_a_mention_is_called_one() -> None:
    named, ordinary = (
        replace(chain(*TRIED, Stage.ACCEPTED), priority="mention"),
        chain(*TRIED, Stage.ACCEPTED),
    )
    for each, says in ((named, True), (ordinary, False)):
        found = FoundEvents(PERIOD, (each,), (each,), ())
        console = Console(record=True, width=120, file=io.StringIO())
        show(console, found, explain_found(found), 5)
        assert ("(mention)" in console.export_text()) is says
        [shown] = as_json(found, explain_found(found))["notifications"]
        assert shown["priority"] == ("mention" if says else "")
