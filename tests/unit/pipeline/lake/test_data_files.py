"""Files are written and read with every value of every column, in a folder and in object storage."""

from __future__ import annotations

import itertools
from datetime import date

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.parquet as parquet  # type: ignore[import-untyped]  # it has no types
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, DataType, DateType, IntegerType, LongType, StringType

from tocsin.pipeline.lake.data_files import WRITE, write_rows
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import FUNNEL_TABLE, SEGMENTS_TABLE, TABLES, TableSpec

VALUES: dict[type[DataType], str] = {
    StringType: "concat('x', id)",
    LongType: "id",
    IntegerType: "int(7)",
    BooleanType: "id > 1",
    DateType: "DATE'2026-11-15'",
}


@pytest.mark.parametrize("spec", [*TABLES, SEGMENTS_TABLE], ids=lambda spec: spec.name)
def test_every_value_of_every_column_comes_back(spark: SparkSession, lake: Lake, spec: TableSpec) -> None:
    """A folder of a write is named like a partition: Spark would take its name for the value of such a column."""
    assert WRITE not in spec.schema.names
    columns = [
        f"{VALUES.get(type(field.dataType), 'binary(string(id))')} AS {field.name}"
        for field in spec.schema.fields
    ]
    made = spark.range(3).selectExpr(*columns)
    table = lake.table(spec)
    table.publish(made, key="one")
    table.publish(made.toArrow(), key="two")
    table.publish(made, key="three", few=True)
    table.publish(write_rows(made.toArrow(), table.place, spec, "four"), key="four")
    wanted = sorted(str(tuple(row)) for row in made.collect())
    assert sorted(str(tuple(row)) for row in table.read(spark).collect()) == sorted(4 * wanted)
    assert sorted(str(tuple(row.values())) for row in table.arrow().to_pylist()) == sorted(
        4 * [each.replace("bytearray(b", "b").replace("'))", "')") for each in wanted]
    )


def test_rows_of_many_partitions_are_written_to_their_own(lake: Lake) -> None:
    """Arrow keeps the order of a hundred groups only by chance."""
    hours = [(date(2026, 11, 1 + number % 14), number * 7 % 24) for number in range(14 * 24)]
    rows = [{"day": day, "hour": hour, "smp_host": f"{day} {hour}"} for day, hour in hours]
    table = lake.table(FUNNEL_TABLE)
    table.publish(pa.Table.from_pylist(rows, to_arrow_schema(FUNNEL_TABLE.schema)))
    found = table.arrow().to_pylist()
    assert len(found) == len(hours)
    assert all(row["smp_host"] == f"{row['day']} {row['hour']}" for row in found)


def test_a_task_keeps_few_files_open(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lake of a year has more partitions than a process may have open files."""
    monkeypatch.setattr("tocsin.pipeline.lake.data_files.OPEN_FILES", 2)
    opened: list[int] = []

    class Counted(parquet.ParquetWriter):  # type: ignore[misc]  # it has no types
        def __init__(self, *arguments: object, **options: object) -> None:
            opened.append(1)
            super().__init__(*arguments, **options)

        def close(self) -> None:
            if self.is_open:
                opened.append(-1)
            super().close()

    monkeypatch.setattr(parquet, "ParquetWriter", Counted)
    hours = spark.range(10).selectExpr(
        "'s' AS source", "string(id) AS segment", "id AS bytes", "id AS read_at"
    )
    rows = hours.selectExpr("*", "date_add(DATE'2026-11-15', int(bytes % 5)) AS day").toArrow()
    table = lake.table(SEGMENTS_TABLE)
    table.publish(rows, key="one")
    assert max(itertools.accumulate(opened)) == 2
    assert sorted(row["bytes"] for row in table.arrow().to_pylist()) == list(range(10))


def test_rows_of_many_batches_make_one_file_for_each_partition(spark: SparkSession, lake: Lake) -> None:
    """A file that is opened again for each batch has a row group for each, which readers pay for."""
    days = "date_add(DATE'2026-11-15', int(id % 3)) AS day"
    rows = spark.range(30).selectExpr(
        "'s' AS source", "string(id) AS segment", "id AS bytes", "id AS read_at", days
    )
    scattered = pa.concat_tables([rows.toArrow().slice(number, 1) for number in range(30)])
    table = lake.table(SEGMENTS_TABLE)
    table.publish(scattered, key="one")
    files = list(table.snapshot().files.values())
    assert sorted((file.partition, file.rows) for file in files) == [
        ((f"2026-11-{15 + n}",), 10) for n in range(3)
    ]
    assert {
        parquet.read_metadata(lake.folder / table.table.name / file.path).num_row_groups for file in files
    } == {1}
    assert all(
        (row["day"] - date(2026, 11, 15)).days == row["bytes"] % 3 for row in table.arrow().to_pylist()
    )
