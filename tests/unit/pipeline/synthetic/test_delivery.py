"""Synthetic events are equal for equal seeds, however they are split, and could come from routers."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from tests.doubles.delivery_lines import NOON
from tests.unit.pipeline.rows import counted, lines
from tocsin.events.delivery_events import decode_event
from tocsin.pipeline.checks.event_checks import event_checks
from tocsin.pipeline.synthetic.delivery import EVENTS_EACH, Traffic, delivery_events
from tocsin.pipeline.transforms.event_lines import as_table, quarantine_of, read_lines

FEW = Traffic(tokens=20, hosts=3)


def test_the_same_seed_gives_the_same_events_in_any_number_of_parts(spark: SparkSession) -> None:
    one, many = spark.range(0, 40, 1, 1), spark.range(0, 40, 1, 7)
    assertDataFrameEqual(delivery_events(one, FEW), delivery_events(many, FEW))
    other = delivery_events(one, Traffic(seed=2, tokens=20, hosts=3))
    assert delivery_events(one, FEW).join(other, on="id", how="left_semi").count() == 0


def test_they_are_events(spark: SparkSession) -> None:
    made = delivery_events(spark.range(30), FEW)
    texts = [row[0] for row in made.select(F.to_json(F.struct("*"))).collect()]
    assert len(texts) >= 30 * (EVENTS_EACH - 1.5)
    for text in texts:
        decode_event(text.encode())
    read = read_lines(lines(spark, texts), checks=event_checks(now=NOON))
    assert quarantine_of(read, seen_at=1).count() == 0


def test_their_accounting_adds_up(spark: SparkSession) -> None:
    rows = counted(as_table(delivery_events(spark.range(300), FEW)).toArrow())["funnel_hourly"]
    assert sum(row.received for row in rows) > sum(row.accepted for row in rows) > 200
    assert {row.difference for row in rows} == {0}
