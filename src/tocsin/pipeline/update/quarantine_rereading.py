"""Reads quarantined lines again, after an upgrade that accepts more of them.

`quarantine` holds no content: segment and hash say where a line is. Lines whose segment was deleted are gone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tocsin.pipeline.checks.event_checks import AHEAD, event_checks
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE, QUARANTINE_TABLE
from tocsin.pipeline.spark.cached_rows import cached
from tocsin.pipeline.transforms.event_lines import REASON, events_of, line_hash, read_lines
from tocsin.pipeline.update.segment_sources import SegmentSources


@dataclass(frozen=True, slots=True)
class Reread:
    events: int
    """Lines that are events now."""
    still_refused: int
    gone: int
    """Lines whose segment has been deleted."""
    gone_segments: tuple[str, ...]


def reread_quarantine(
    spark: SparkSession,
    lake: Lake,
    sources: Sequence[str | Path],
    *,
    now: int,
    ahead: int = AHEAD,
    dry_run: bool = False,
) -> Reread:
    """Moves lines that pass the checks now from `quarantine` to `events`. A second run does nothing."""
    table = lake.table(QUARANTINE_TABLE)
    before = table.snapshot()
    quarantined = table.read(spark, before.files.values())
    counts = {row.segment: row["count"] for row in quarantined.groupBy("segment").count().collect()}
    published = SegmentSources(sources, lake.place.options)
    here = [piece for name in sorted(counts) if (piece := published.labelled(name))]
    missing = sorted(counts.keys() - {piece.label for piece in here})
    gone = sum(counts[name] for name in missing)
    if not here:
        return Reread(0, 0, gone, tuple(missing))
    lines = published.lines(spark, here)
    wanted = quarantined.select("segment", "line_hash").distinct()
    found = lines.withColumn("line_hash", line_hash()).join(
        F.broadcast(wanted), ["segment", "line_hash"], "left_semi"
    )
    checked = read_lines(found.select("value", "segment"), checks=event_checks(now=now, ahead=ahead))
    with cached(checked) as read:
        good = read.where(F.col(REASON).isNull())
        names = sorted(row[0] for row in good.select(line_hash()).distinct().collect())
        number = good.count()
        if names and not dry_run:
            key = f"reread-{hashlib.sha256(''.join(names).encode()).hexdigest()[:16]}"
            lake.table(EVENTS_TABLE).publish(events_of(read), key=key)
            accepted = good.select("segment", line_hash().alias("line_hash")).distinct()
            left = quarantined.join(F.broadcast(accepted), ["segment", "line_hash"], "left_anti")
            table.publish(
                left.select(*QUARANTINE_TABLE.schema.names),
                replacing=before.partitions,
                based_on=before,
            )
        return Reread(number, read.count() - number, gone, tuple(missing))
