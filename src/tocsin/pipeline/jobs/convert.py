"""`tocsin pipeline convert`: copies a lake of the form before Delta to a new place, and compares counts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from tocsin.errors import ConfigError, StoreError
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, step
from tocsin.pipeline.lake.earlier_form import COMMITS, EarlierTable, earlier_table, read_segments
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import TABLES, TableSpec
from tocsin.pipeline.spark.session import spark_session, where_it_runs
from tocsin.pipeline.update.event_stream import STREAM, remember_segments
from tocsin.pipeline.update.segment_sources import SegmentPiece

KEY: Final = "convert"
NOT_COPIED: Final = {"_build.lock"}


def run_convert(job: JobOptions, earlier: Path) -> int:
    """Returns the exit code. Raises StoreError if a table has other counts than before. The earlier lake stays."""
    known = [table for table in TABLES if (earlier / table.name / COMMITS).is_dir()]
    found = {table: earlier_table(earlier / table.name) for table in known}
    if not found:
        raise ConfigError(
            f"no lake of the earlier form at {earlier}: nothing to convert. Name its folder with --from"
        )
    if job.place.local is not None and job.place.local.resolve() == earlier.resolve():
        raise ConfigError(
            "name another place with --lake: the earlier lake stays as it is until you delete it"
        )
    summary = Summary(KEY)
    summary.add(**{table.name: old.rows for table, old in found.items()})
    if not job.dry_run:
        with spark_session(job.spark(KEY)) as spark, step(spark, KEY) as shown:
            lake = job.open_lake()
            for table, old in found.items():
                shown(table.name)
                _convert(spark, lake, earlier, table, old, found)
            summary.add(segments=_convert_segments(lake, earlier), **where_it_runs(spark))
        _copy_other_files(earlier, lake.folder)
    notes = {} if job.dry_run else {table.name: "the same in the new lake" for table in found}
    summary.show(as_json=job.as_json, notes=notes)
    return 0


def _convert(
    spark: SparkSession,
    lake: Lake,
    earlier: Path,
    table: TableSpec,
    old: EarlierTable,
    all_old: dict[TableSpec, EarlierTable],
) -> None:
    numbers = {each.name: known.number for each, known in all_old.items()}
    # A table that covers all of its source covers all of the new one, whose rows are its first commit. Otherwise the
    # next build merges all events again, which changes nothing that it has covered.
    sources = {
        name: covered if name not in numbers else int(covered == numbers[name])
        for name, covered in old.sources.items()
    }
    target = lake.table(table)
    paths = [str(earlier / table.name / path) for path in old.files]
    reader = spark.read.schema(table.schema).option("basePath", str(earlier / table.name))
    rows = reader.parquet(*paths) if paths else spark.createDataFrame([], table.schema)
    tidy = rows.repartition(4, *table.partitioned_by)
    target.publish(tidy, key=KEY, sources=sources)
    now = target.snapshot().rows
    if now != old.rows:
        raise StoreError(
            f"{table.name} had {old.rows:,} rows and has {now:,} in {target.place.uri}: do not use the new lake. "
            f"The earlier one at {earlier} is unchanged"
        )


def _convert_segments(lake: Lake, earlier: Path) -> int:
    paths = read_segments(earlier / "_checkpoints" / STREAM)
    remember_segments(
        lake,
        [SegmentPiece(str(path.parent.resolve()), path.name, path.stat().st_size) for path in paths],
        key=KEY,
    )
    return len(paths)


def _copy_other_files(earlier: Path, folder: Path) -> None:
    """Progress of other streams, states of jobs, campaigns and their keys."""
    tables = {table.name for table in TABLES}
    for path in earlier.iterdir():
        target = folder / path.name
        if path.name in tables | NOT_COPIED or target.exists():
            continue
        if path.is_dir():
            shutil.copytree(path, target)
        else:
            shutil.copy2(path, target)
    shutil.rmtree(folder / "_checkpoints" / STREAM, ignore_errors=True)  # the table segments has it
