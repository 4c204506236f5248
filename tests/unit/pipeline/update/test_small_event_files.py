"""Many small files of events are merged in Python, with the rows that Spark makes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from tests.doubles.delivery_lines import NOON, event, subscription_change, token_change
from tests.doubles.lake_rows import tables
from tests.unit.pipeline.update.lake_updates import delivered, publish_events
from tests.unit.pipeline.update.test_any_events import DAY, mixes
from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.pipeline.lake.column_values import column_values_of
from tocsin.pipeline.lake.commits import DataFile
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE
from tocsin.pipeline.transforms import notifications as transform
from tocsin.pipeline.update import small_event_files
from tocsin.pipeline.update.build import build
from tocsin.pipeline.update.small_event_files import are_small, merged_small_files

TWO_REASONS = [
    *delivered(1),
    event(Stage.RECEIVED, 2, token=2),
    event(Stage.FAILED, 2, token=2, reason="x"),
    event(Stage.SHED, 2, token=2, reason="y"),
    event(Stage.ATTEMPTED, 3, token=3, attempt=2, reason="not counted"),
]
ONLY_CHANGES = [token_change(1, "ACTIVE"), subscription_change(2, "ACTIVE")]


def publish_apart(
    spark: SparkSession, lake: Lake, mix: list[DeliveryEvent], key: str = "first"
) -> list[DataFile]:
    """In several files of each hour, of which each may lack stages and texts of the others."""
    for part in range(3):
        if own := mix[part::3]:
            publish_events(spark, lake, own, f"{key}-{part}")
    return list(lake.table(EVENTS_TABLE).snapshot().files.values())


@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(mix=mixes())
@example(mix=TWO_REASONS)
@example(mix=ONLY_CHANGES)
@pytest.mark.timeout(600)
def test_small_files_give_the_rows_that_spark_reads_and_merges(
    spark: SparkSession, tmp_path: Path, mix: list[DeliveryEvent]
) -> None:
    shutil.rmtree(tmp_path / "lake", ignore_errors=True)
    lake = Lake(tmp_path / "lake")
    files = publish_apart(spark, lake, mix)
    events = lake.table(EVENTS_TABLE)
    values = column_values_of(spark, events, files)
    usual = transform.coded_events(events.read(spark, files), stages=values.stages, texts=values.texts)
    small = merged_small_files(spark, events, files, values)
    assert small.columns == usual.columns
    assertDataFrameEqual(transform.merged(small), transform.merged(usual))


@pytest.mark.timeout(600)
def test_tables_are_the_same_whether_files_are_small_or_not(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    for many, merged_at_once in ((1, 3), (1_000, 3)):
        monkeypatch.setattr(small_event_files, "MANY_FILES", many)
        monkeypatch.setattr(small_event_files, "MERGED_AT_ONCE", merged_at_once)
        lake = Lake(tmp_path / f"lake-{many}")
        for day in range(2):  # the second time, rows are merged with earlier ones
            mix = [*TWO_REASONS, *ONLY_CHANGES, *delivered(4 + day, NOON + day * DAY)]
            publish_apart(spark, lake, mix, f"day-{day}")
            assert build(spark, lake, smallest_group=1).failures == {}
        built.append({name: rows for name, rows in tables(lake.folder).items() if name != "events"})
    assert built[0] == built[1]


def test_few_files_or_large_ones_are_left_to_spark() -> None:
    small, large = (DataFile(str(rows), rows) for rows in (1_000, 1_000_000))
    assert are_small([small] * 100)
    assert not are_small([small] * 99)
    assert not are_small([small, large] * 50)
