"""Lines become events, or are quarantined with a reason and without their content."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import NOON, encode_events, event, token_change
from tests.unit.pipeline.rows import events, lines
from tocsin.events.delivery_events import SCHEMA_VERSION, Stage
from tocsin.pipeline.checks.event_checks import DAY, event_checks
from tocsin.pipeline.schemas.events import EVENTS, QUARANTINE
from tocsin.pipeline.transforms.event_lines import UNKNOWN_FIELDS, events_of, quarantine_of, read_lines

CHECKS = event_checks(now=NOON, ahead=DAY)
GOOD = json.loads(encode_events([event(Stage.RECEIVED)]))


def changed(**fields: object) -> str:
    return json.dumps({name: value for name, value in {**GOOD, **fields}.items() if value is not None})


def test_an_event_has_the_columns_of_the_table_and_its_hour(spark: SparkSession) -> None:
    rows = events(spark, [event(Stage.ATTEMPTED, attempt=2), token_change(1, "ACTIVE")])
    assert rows.columns == EVENTS.names
    attempted, change = sorted(rows.collect(), key=lambda row: row.stage)
    assert (str(attempted.day), attempted.hour, attempted.at, attempted.attempt) == (
        "2026-11-15",
        12,
        NOON,
        2,
    )
    assert attempted.id is None  # it follows from the notification, the stage and the attempt
    assert change.id == f"ntf-1-{NOON}-1"
    assert change.notification_high is None
    assert change.to_status == "ACTIVE"


def test_pseudonyms_are_hashed_with_their_period(spark: SparkSession) -> None:
    one, same, other = events(
        spark,
        [
            event(Stage.RECEIVED, at=NOON),
            event(Stage.RECEIVED, at=NOON + 1),
            event(Stage.RECEIVED, at=NOON + 2, period="20773-0123abcd"),
        ],
    ).orderBy("at").collect()  # fmt: skip
    identity = ("notification_high", "notification_low", "queue", "token")
    assert [one[name] for name in identity] == [same[name] for name in identity]
    assert all(one[name] != other[name] for name in identity)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "not JSON"),
        ("no JSON at all", "not JSON"),
        ('{"id": "x"', "not JSON"),
        (changed(version=SCHEMA_VERSION + 1), f"not version {SCHEMA_VERSION}"),
        (changed(stage=None), "no stage"),
        (changed(period=None), "no period"),
        (changed(stage="teleported"), "unknown stage"),
        (changed(at=17), "impossible time"),
        (changed(at=NOON + DAY + 1), "time ahead"),
        (changed(at=3_786_912_000_000_000), "time ahead"),
        (changed(period="yesterday"), "not a period"),
        (changed(period="20774-0123abcd"), "period ahead"),
        (changed(period="999999-0123abcd"), "period ahead"),
        (changed(token="clear-device-token"), "token is no pseudonym"),
        (changed(queue="q" * 23), "queue is no pseudonym"),
        (changed(notification=None), "no notification"),
        (changed(smp_host="h" * 256), "text too long"),
    ],
)
def test_a_line_that_is_no_event_is_quarantined_with_the_reason(
    spark: SparkSession, line: str, reason: str
) -> None:
    read = read_lines(lines(spark, [line, changed()]), checks=CHECKS)
    [bad] = quarantine_of(read, seen_at=NOON).collect()
    assert (bad.reason, bad.segment, bad.line_bytes) == (reason, "ntf/events-1.jsonl", len(line))
    assert events_of(read).count() == 1


def test_quarantine_does_not_say_what_a_line_says(spark: SparkSession) -> None:
    read = read_lines(lines(spark, [changed(token="a-device-token-in-clear")]), checks=CHECKS)
    rows = quarantine_of(read, seen_at=NOON)
    assert rows.columns == QUARANTINE.names
    assert "a-device-token-in-clear" not in str(rows.collect())


def test_a_time_may_be_ahead_by_the_stated_skew(spark: SparkSession) -> None:
    ahead = [changed(at=NOON + DAY), changed(at=NOON + DAY, period="20773-0123abcd")]
    assert events_of(read_lines(lines(spark, ahead), checks=CHECKS)).count() == 2
    strict = event_checks(now=NOON, ahead=DAY // 2)
    assert [
        row.reason
        for row in quarantine_of(read_lines(lines(spark, ahead), checks=strict), seen_at=1).collect()
    ] == [
        "time ahead",
        "time ahead",
    ]


def test_the_version_before_is_read_and_fields_of_later_ones_are_ignored_but_counted(
    spark: SparkSession,
) -> None:
    written = [changed(), changed(version=1), changed(version=2, colour="red", taste=1), changed(version=3)]
    read = read_lines(lines(spark, written), checks=event_checks(now=NOON, version=2))
    assert sorted(row.version for row in events_of(read).collect()) == [1, 1, 2]
    assert [row.reason for row in quarantine_of(read, seen_at=1).collect()] == ["not version 2"]
    assert [row[UNKNOWN_FIELDS] for row in read.collect()] == [0, 0, 2, 0]
