"""The questions of docs/howto/ask-the-data.md are asked as they stand there, with DuckDB and Polars."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import NOON, event, write_segment
from tests.unit.pipeline.update.lake_updates import delivered, ingest
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import SEGMENTS_TABLE, TABLES
from tocsin.pipeline.update.build import build

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "ask-the-data.md"
SQL = re.findall(r"## (\d+)\. [^\n]*\n\n```sql\n(.*?)```", PAGE.read_text("utf-8"), re.S)
PYTHON = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
DAY = date(2026, 11, 15)
HOUR = 3_600_000_000
HOST = "smp.example"

ANSWERS: dict[str, Any] = {
    "1": [(DAY, 5, 3, 0, 1, 0, 1, 0)],
    "2": [(DAY, 12, 4, 1, 25.0), (DAY, 14, 1, 0, 0.0)],
    "6": [(HOST, 1, 5)],
    "4": [(DAY, 2.0, 2.0, 2.0)],
    "8": [(DAY, 12, HOST, 1)],
    "9": [("not JSON", "ntf/events-2.jsonl", 1, 7)],
}


@pytest.fixture(scope="module")
def asked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asked")
    write_segment(
        folder / "ntf",
        1,
        [
            *delivered(1),
            *delivered(2, at=NOON + 10),
            event(Stage.RECEIVED, 3, at=NOON, token=1),
            event(Stage.RECEIVED, 4, at=NOON + 10, token=2),
            event(Stage.FAILED, 4, at=NOON + 20, token=2, reason="Unregistered"),
            event(Stage.UNKNOWN_QUEUE, 5, at=NOON + 30),
            event(Stage.RECEIVED, 6, at=NOON + 2 * HOUR, token=2),
            event(Stage.ACCEPTED, 6, at=NOON + 2 * HOUR + 2000, token=2),
        ],
    )
    (folder / "ntf" / "events-2.jsonl").write_text("garbage\n")
    lake = Lake(folder / "lake")
    ingest(spark, lake, folder / "ntf")
    build(spark, lake, smallest_group=1)
    return lake.folder


@pytest.fixture
def database(asked: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for table in (*TABLES, SEGMENTS_TABLE):
            if (asked / table.name).exists():
                found = DeltaTable(str(asked / table.name)).to_pyarrow_dataset()
                connection.register(table.name, found)
        yield connection


def test_there_are_ten_questions() -> None:
    assert [number for number, _ in SQL] == [str(number) for number in range(1, 11)]
    assert len(PYTHON) == 3


@pytest.mark.parametrize(("number", "question"), SQL, ids=lambda text: text if len(text) < 3 else "")
def test_duckdb_answers(database: duckdb.DuckDBPyConnection, number: str, question: str) -> None:
    answer = database.execute(question).fetchall()
    if number in ANSWERS:
        assert answer == ANSWERS[number]
    else:
        assert answer


@pytest.fixture(scope="module")
def of_polars(asked: Path) -> dict[str, Any]:
    """The names that the page's programs define."""
    names: dict[str, Any] = {"lake": str(asked)}
    for code in PYTHON:
        exec(code, names)  # noqa: S102 - the page's own text
    return names


@pytest.mark.parametrize(("number", "question"), SQL, ids=lambda text: text if len(text) < 3 else "")
def test_polars_gives_the_same_answers(
    database: duckdb.DuckDBPyConnection, of_polars: dict[str, Any], number: str, question: str
) -> None:
    answer = of_polars["database"].execute(question).collect().rows()
    assert answer == database.execute(question).fetchall(), number


def test_programs_for_polars_answer(of_polars: dict[str, Any]) -> None:
    assert of_polars["everything"].rows() == [(6,)]
    assert of_polars["by_day"].rows() == [(DAY, 5, 3, 1, 0)]
    assert of_polars["slowest"]["milliseconds"].to_list() == [2.0, 2.0, 2.0]


def test_pandas_reads_a_table(asked: Path) -> None:
    assert DeltaTable(str(asked / "funnel_hourly")).to_pandas()["received"].sum() == 5
