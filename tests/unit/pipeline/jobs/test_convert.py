"""A lake of the form before Delta is copied whole: rows, coverage of sources, segments that were read."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import write_segment
from tests.doubles.lake_rows import tables
from tests.unit.pipeline.update.lake_updates import delivered, ingest
from tocsin.errors import ConfigError, StoreError
from tocsin.pipeline.jobs import convert
from tocsin.pipeline.jobs.convert import run_convert
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE, SEGMENTS_TABLE, TABLES
from tocsin.pipeline.update.build import build, unbuilt


def as_before(spark: SparkSession, lake: Lake, folder: Path, source: Path) -> None:
    """Writes a lake as the earlier version did, with the rows of this one, in two commits."""
    for table in TABLES:
        found = lake.table(table)
        if not found.snapshot().number:
            continue
        target = folder / table.name
        found.read(spark).write.partitionBy(*table.partitioned_by).parquet(str(target))
        names = [str(path.relative_to(target)) for path in target.rglob("*.parquet")]
        commits = target / "_commits"
        commits.mkdir()
        sources = {} if table == EVENTS_TABLE else {"events": 2, "smallest_group": 1}
        gone = {"path": "gone.parquet", "rows": 7}
        first = {"number": 1, "key": "a", "at": 0.0, "adds": [gone], "removes": [], "sources": {}}
        adds = [{"path": name, "rows": lake_rows(target / name)} for name in names]
        second = {
            "number": 2,
            "key": "b",
            "at": 0.0,
            "adds": adds,
            "removes": ["gone.parquet"],
            "sources": sources,
        }
        (commits / "state.json").write_text(
            json.dumps({"number": 1, "files": [gone], "keys": [], "sources": {}})
        )
        for commit in (first, second):
            (commits / f"{commit['number']:010d}.json").write_text(json.dumps(commit))
    log = folder / "_checkpoints" / "ingest" / "sources" / "0"
    log.mkdir(parents=True)
    (folder / "_checkpoints" / "ingest" / "commits").mkdir()
    (folder / "_checkpoints" / "ingest" / "commits" / "0").write_text("v1\n{}")
    paths = sorted(source.glob("*.jsonl"))
    for batch, path in enumerate(paths):
        (log / str(batch)).write_text(f'v1\n{{"path":"{path.as_uri()}","timestamp":1,"batchId":{batch}}}')
    (folder / "_campaigns").mkdir()


def lake_rows(path: Path) -> int:
    from pyarrow.parquet import read_metadata  # type: ignore[import-untyped]  # it has no types

    return int(read_metadata(path).num_rows)


def test_an_earlier_lake_is_copied_and_goes_on(
    spark: SparkSession,
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, old, new = tmp_path / "ntf", tmp_path / "old", tmp_path / "new"
    write_segment(source, 1, delivered(1))
    ingest(spark, lake, source)
    build(spark, lake, smallest_group=1)
    as_before(spark, lake, old, source)
    write_segment(source, 2, delivered(2))  # planned by the earlier version, and not completed
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match="tocsin pipeline convert"):
        Lake(old)
    with pytest.raises(ConfigError, match="another place"):
        run_convert(JobOptions(old), old)
    with pytest.raises(ConfigError, match="nothing to convert"):
        run_convert(JobOptions(new), tmp_path)
    monkeypatch.setattr(convert, "spark_session", lambda _: nullcontext(spark))
    assert run_convert(JobOptions(new, as_json=True), old) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["events"], said["segments"]) == (5, 1)
    assert {path: path.read_bytes() for path in old.rglob("*") if path.is_file()} == before
    converted = Lake(new)
    assert tables(new) == tables(lake.folder)
    assert unbuilt(converted)["new_events"] == 0
    assert (new / "_campaigns").is_dir()
    assert converted.table(SEGMENTS_TABLE).snapshot().rows == 1
    for each in (converted, lake):
        ingest(spark, each, source)
        build(spark, each, smallest_group=1)
    assert tables(new) == tables(lake.folder)
    assert run_convert(JobOptions(new, dry_run=True), old) == 0


def test_a_copy_with_other_counts_is_refused(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, old = tmp_path / "ntf", tmp_path / "old"
    write_segment(source, 1, delivered(1))
    ingest(spark, lake, source)
    as_before(spark, lake, old, source)
    commit = old / "events" / "_commits" / "0000000002.json"
    commit.write_text(commit.read_text().replace('"rows": 5', '"rows": 6'))
    monkeypatch.setattr(convert, "spark_session", lambda _: nullcontext(spark))
    with pytest.raises(StoreError, match="events had 6 rows and has 5"):
        run_convert(JobOptions(tmp_path / "new"), old)
    commit.write_text("{")
    with pytest.raises(StoreError, match="cannot read the commits"):
        run_convert(JobOptions(tmp_path / "new"), old)
    shutil.rmtree(old)
