"""Places of tables are named by path or address; in object storage a lake works as it does in a folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, DateType, IntegerType, LongType, StringType, StructField, StructType

from tests.doubles.delivery_lines import write_segment
from tests.doubles.object_storage import BUCKET, object_storage
from tests.unit.pipeline.update.lake_updates import delivered, ingest
from tocsin.errors import ConfigError, StoreError
from tocsin.pipeline.lake.lake import SMALL_FILES, Lake, LakeTable, existing_lake
from tocsin.pipeline.lake.places import TablePlace, table_place
from tocsin.pipeline.lake.tables import EVENTS_TABLE, FUNNEL_TABLE, TABLES, TableSpec
from tocsin.pipeline.report.collection import Collection
from tocsin.pipeline.report.figures import Days
from tocsin.pipeline.update.build import accounting, build

ROWS = TableSpec(
    "rows",
    StructType(
        [
            StructField("n", LongType()),
            StructField("text", StringType()),
            StructField("raw", BinaryType()),
            StructField("day", DateType()),
            StructField("hour", IntegerType()),
        ]
    ),
    ("day", "hour"),
    30,
)


@pytest.fixture(scope="module")
def storage() -> Iterator[dict[str, str]]:
    with object_storage() as options:
        yield options


@pytest.fixture
def place(storage: dict[str, str], request: pytest.FixtureRequest) -> TablePlace:
    return table_place(f"s3://{BUCKET}/{abs(hash(request.node.name))}", storage)


def rows(spark: SparkSession, *numbers: int, hour: int = 7) -> DataFrame:
    made = spark.createDataFrame([(number,) for number in numbers], "n long")
    return made.selectExpr(
        "n", "concat('t', n) AS text", "binary('b') AS raw", "DATE'2026-11-15' AS day", f"{hour} AS hour"
    )


def numbers(spark: SparkSession, table: LakeTable) -> list[int]:
    return sorted(row.n for row in table.read(spark).collect())


def test_a_place_is_a_folder_or_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert table_place("lake").local == tmp_path / "lake"
    assert table_place(f"file://{tmp_path}/my%20lake").local == tmp_path / "my lake"
    found = table_place("s3://bucket/lake/", {"AWS_SECRET_ACCESS_KEY": "x"}) / "events"
    assert (found.uri, found.local) == ("s3://bucket/lake/events", None)
    assert "AWS" not in repr(found)
    for wrong in ("ftp://host/lake", "s3://", "hdfs://name/lake"):
        with pytest.raises(ConfigError, match=f"cannot use {wrong}: name a folder"):
            table_place(wrong)


def test_rows_come_back_from_object_storage_as_they_were(spark: SparkSession, place: TablePlace) -> None:
    table = LakeTable(place, ROWS)
    assert numbers(spark, table) == []
    table.publish(rows(spark, 1, 2), key="one")
    table.publish(rows(spark, 3, hour=8).drop("text"), key="two")
    assert table.publish(rows(spark, 3), key="two") is None
    found = sorted(table.read(spark).collect(), key=lambda row: row.n)
    assert [(row.n, row.text, row.raw, str(row.day), row.hour) for row in found] == [
        (1, "t1", bytearray(b"b"), "2026-11-15", 7),
        (2, "t2", bytearray(b"b"), "2026-11-15", 7),
        (3, None, bytearray(b"b"), "2026-11-15", 8),
    ]
    table.publish(rows(spark, 9), replacing=[("2026-11-15", "7")])
    assert numbers(spark, table) == [3, 9]
    assert sorted(row["n"] for row in table.arrow().to_pylist()) == [3, 9]
    assert table.changes_since(1).partitions == {("2026-11-15", "7"), ("2026-11-15", "8")}


def test_object_storage_is_compacted_expired_and_swept(spark: SparkSession, place: TablePlace) -> None:
    table = LakeTable(place, ROWS)
    for number in range(SMALL_FILES):
        table.publish(rows(spark, number), key="stream", number=number + 1)
    assert table.compact(spark, 0.0) > 0
    assert len(table.snapshot().files) == 1
    assert numbers(spark, table) == list(range(SMALL_FILES))
    assert table.sweep() == 0
    assert table.expire("2026-12-01") == SMALL_FILES


def test_of_two_writers_in_object_storage_none_loses_rows(spark: SparkSession, place: TablePlace) -> None:
    """Creating the next commit is one conditional request, so both cannot succeed with the same number."""
    batches = 6

    def write(first: int) -> None:
        table = LakeTable(place, ROWS)
        for number in range(first, first + batches):
            table.publish(rows(spark, number), key=f"writer-{first}", number=number + 1)

    writers = [threading.Thread(target=write, args=(first,)) for first in (0, 100)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    table = LakeTable(place, ROWS)
    assert numbers(spark, table) == [*range(batches), *range(100, 100 + batches)]
    assert table.snapshot().number == 2 * batches


def test_a_whole_lake_works_in_object_storage(spark: SparkSession, place: TablePlace, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no lake at s3://"):
        existing_lake(place, work=tmp_path / "work")
    lake = Lake(place, work=tmp_path / "work")
    for number in (1, 2, 3):
        write_segment(tmp_path / "ntf", number, [*delivered(number), *delivered(number + 1)])
        ingest(spark, lake, tmp_path / "ntf")
        build(spark, lake, smallest_group=1)
    local = Lake(tmp_path / "lake")
    ingest(spark, local, tmp_path / "ntf")
    build(spark, local, smallest_group=1)
    again = existing_lake(place, work=tmp_path / "work")
    assert accounting(spark, again) == accounting(spark, local)
    assert again.table(EVENTS_TABLE).snapshot().rows == 30
    for table in TABLES:
        mine, theirs = (
            sorted(
                str({name: value for name, value in row.items() if name not in ("sketch", "seen_at")})
                for row in each.table(table).arrow().to_pylist()
            )
            for each in (again, local)
        )
        assert mine == theirs, table.name
    day, now = date(2026, 11, 15), datetime(2026, 11, 16, tzinfo=UTC)
    reports = [Collection(each).figures(Days(day, day), now=now) for each in (again, local)]
    assert reports[0] == replace(reports[1], built_at=reports[0].built_at)
    assert reports[0].period.accounting.received == 4
    assert not list((tmp_path / "work").glob(FUNNEL_TABLE.name))


def test_storage_that_does_not_answer_is_named(tmp_path: Path) -> None:
    options = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "x"}
    options |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "max_retries": "0"}
    with pytest.raises(StoreError, match="cannot use the table at s3://lake/x/rows"):
        LakeTable(table_place("s3://lake/x", options), ROWS).snapshot()
