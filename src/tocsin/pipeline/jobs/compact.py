"""`tocsin pipeline compact`: a router's store log → the compact one that its router would make of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tocsin.errors import ConfigError, StoreError
from tocsin.observability.private_files import write_private_lines
from tocsin.pipeline.compaction.store_logs import (
    BROKEN,
    SKIPPED,
    StoreLogKind,
    compact,
    partitions_for,
    read_log,
)
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, step
from tocsin.pipeline.spark.session import spark_session


@dataclass(frozen=True, slots=True)
class CompactOptions:
    log: Path
    out: Path
    skip_broken_lines: bool = False

    def __post_init__(self) -> None:
        if self.out.resolve() == self.log.resolve():
            raise ConfigError(
                f"{self.out} is the log itself: name another file, and put it in place afterwards"
            )


def run_compact(job: JobOptions, options: CompactOptions, kind: StoreLogKind) -> None:
    """Raises ConfigError if there is no log, StoreError if it has lines that are none."""
    summary = Summary("compact")
    with spark_session(job.spark("compact", shuffle_partitions=8)) as spark, step(spark, "compact") as shown:
        lines = read_log(spark, options.log)
        shown("which lines belong together")
        made = compact(spark, lines, kind, partitions_for(options.log)).persist()
        shown("reading them")
        counted = Counter({row["section"]: row["lines"] for row in _counts(made).collect()})
        if counted[BROKEN] and not options.skip_broken_lines:
            raise StoreError(_broken(made, counted[BROKEN], options.log))
        if not job.dry_run:
            shown("writing")
            write_private_lines(options.out, _lines(made, len(kind.sections)))
    summary.add(**{name: counted[number] for number, name in enumerate(kind.sections)})
    summary.add(
        lines_about_nothing=counted[SKIPPED], broken_lines=counted[BROKEN], was_bytes=_size(options.log)
    )
    if not job.dry_run:
        summary.add(bytes=_size(options.out), compact_log=str(options.out))
    summary.show(as_json=job.as_json)


def _counts(made: DataFrame) -> DataFrame:
    number = F.when(F.col("section") == SKIPPED, F.decode("line", "UTF-8").cast("long")).otherwise(1)
    return made.groupBy("section").agg(F.sum(number).alias("lines"))


def _broken(made: DataFrame, count: int, log: Path) -> str:
    row = made.where(F.col("section") == BROKEN).head()
    reason = bytes(row["line"]).decode() if row else ""
    return f"{count} lines of {log} cannot be read, the first one: {reason}. --skip-broken-lines goes on without them"


def _lines(made: DataFrame, sections: int) -> Iterator[bytes]:
    for section in range(sections):
        for row in made.where(F.col("section") == section).select("line").toLocalIterator():
            yield bytes(row["line"])


def _size(path: Path) -> int:
    return path.stat().st_size
