"""Segments in a folder and copied to object storage are read alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import write_segment
from tests.doubles.object_storage import BUCKET, object_storage, put_object
from tests.unit.pipeline.update.lake_updates import delivered
from tocsin.errors import ConfigError, StoreError
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.places import TablePlace, table_place
from tocsin.pipeline.lake.tables import EVENTS_TABLE, QUARANTINE_TABLE, SEGMENTS_TABLE
from tocsin.pipeline.update.event_stream import IngestedBatch, SegmentIngest, try_ingest
from tocsin.pipeline.update.quarantine_rereading import reread_quarantine
from tocsin.pipeline.update.segment_sources import SegmentPiece, SegmentSources


@pytest.fixture(scope="module")
def storage() -> Iterator[dict[str, str]]:
    with object_storage() as options:
        yield options


@pytest.fixture(params=["folder", "object storage"])
def place(request: pytest.FixtureRequest, storage: dict[str, str], tmp_path: Path) -> TablePlace:
    if request.param == "object storage":
        return table_place(f"s3://{BUCKET}/{tmp_path.name}/ntf", storage)
    (tmp_path / "copied" / "ntf").mkdir(parents=True)
    return table_place(tmp_path / "copied" / "ntf", storage)


def put(place: TablePlace, name: str, text: str) -> None:
    if (folder := place.local) is not None:
        (folder / name).write_bytes(text.encode())
    else:
        put_object(dict(place.options), f"{place.uri}/{name}", text.encode())


def test_a_source_lists_and_reads_published_segments(spark: SparkSession, place: TablePlace) -> None:
    put(place, "events-2.jsonl", "b\n\nc+ ü\n")
    put(place, "events-1.jsonl", "a\n")
    put(place, "open-3.jsonl", "not yet\n")
    sources = SegmentSources([place.uri], place.options)
    [source] = sources.names
    one, two = SegmentPiece(source, "events-1.jsonl", 2), SegmentPiece(source, "events-2.jsonl", 9)
    gone = SegmentPiece(source, "events-7.jsonl", 1)
    assert sources.sizes(source) == {"events-1.jsonl": 2, "events-2.jsonl": 9}
    assert sources.sizes(source, {"events-1.jsonl"}) == {"events-2.jsonl": 9}
    assert sources.existing(source) == {"events-1.jsonl", "events-2.jsonl"}
    assert sources.pieces() == [one, two]
    assert [sources.exists(each) for each in (one, gone)] == [True, False]
    found = sources.labelled("ntf/events-2.jsonl")
    assert found is not None
    assert (found.source, found.name) == (source, "events-2.jsonl")
    assert sources.labelled("ntf/events-7.jsonl") is None
    assert sources.labelled("smp/events-2.jsonl") is None
    assert sources.tail(SegmentPiece(source, "events-2.jsonl", 9, 4)) == ["c+ ü"]
    assert sources.tail(gone) == []
    lines = [
        (row.value, row.segment) for row in sources.lines(spark, [two, gone, one]).collect() if row.value
    ]
    named = [("a", "ntf/events-1.jsonl"), ("b", "ntf/events-2.jsonl"), ("c+ ü", "ntf/events-2.jsonl")]
    assert sorted(lines) == named
    assert sources.lines(spark, []).collect() == []


def test_segments_are_ingested_once_also_what_is_appended_and_quarantined(
    spark: SparkSession, place: TablePlace, lake: Lake, tmp_path: Path
) -> None:
    lake = Lake(table_place(lake.folder, place.options))
    text = write_segment(tmp_path / "written", 1, delivered(1)).read_text("utf-8")
    put(place, "events-1.jsonl", text + "garbage\n")
    assert try_ingest(spark, [place.uri], place.options) == IngestedBatch(5, 1)
    reader = SegmentIngest(spark, lake, [place.uri])
    assert [(each.events, each.quarantined) for each in reader.read_all()] == [(5, 1)]
    put(place, "events-1.jsonl", text + "garbage\n" + text)
    put(place, "events-2.jsonl", text)
    again = SegmentIngest(spark, lake, [place.uri])
    done = again.read(again.waiting(check_sizes=True))
    assert (done.events, done.appended) == (10, 5)
    assert not again.waiting(check_sizes=True)
    assert lake.table(EVENTS_TABLE).snapshot().rows == 15
    assert lake.table(QUARANTINE_TABLE).arrow()["segment"].to_pylist() == ["ntf/events-1.jsonl"]
    assert set(lake.table(SEGMENTS_TABLE).arrow()["source"].to_pylist()) == set(
        SegmentSources([place.uri]).names
    )
    found = reread_quarantine(spark, lake, [place.uri], now=0)
    assert (found.events, found.still_refused, found.gone) == (0, 1, 0)


def test_a_source_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no event log folder at"):
        SegmentSources([tmp_path / "missing"])
    with pytest.raises(ConfigError, match="cannot use ftp://x/y"):
        SegmentSources(["ftp://x/y"])
    options = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "x"}
    options |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "max_retries": "0"}
    with pytest.raises(StoreError, match="cannot read event logs at s3://lake/x"):
        SegmentSources(["s3://lake/x"], options).pieces()
