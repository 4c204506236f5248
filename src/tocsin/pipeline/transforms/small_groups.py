"""The cells that hourly tables count by: groups of an hour, an SMP host and a provider, each of enough devices.

Theory of operation. Every notification belongs to exactly one cell, and every cell holds at least `smallest` devices.
All figures that anyone sees are figures of whole cells or sums of them. So the difference of two figures is a sum of
whole cells again, and never tells about fewer devices (docs/explanation/small-groups.md). Three steps make the cells:

1. An hour with too few devices is counted with the last earlier hour of its day that has enough, or with the first that
   has. A day without such an hour is one cell if it has enough devices, and is withheld otherwise. The newest hour of
   all waits until it has enough, or until a later hour begins.
2. SMP hosts with too few devices within the hours of a cell are counted together. If all of them together have too few,
   the smallest of the other hosts joins them.
3. Providers of a host are counted together unless each of them has enough devices.

A device is a token. On days without any token, when only an SMP router wrote events, a queue stands for a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from tocsin.pipeline.schemas.events import BY_HOUR
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS

GROUP: Final = (*BY_HOUR, "smp_host", "provider")
CELL: Final = ("cell_hour", "cell_host", "cell_provider")
HourKey = tuple[str, int]
"""Day and hour."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Says to which cell each group belongs. Groups that are not named are withheld."""

    groups: DataFrame
    """`day`, `hour`, `smp_host`, `provider` (empty instead of null) and the columns of CELL."""
    hours: DataFrame
    """`day`, `hour` and `cell_hour`."""
    smallest: int


def sizes_of(hours: DataFrame) -> DataFrame:
    """Numbers of tokens and of queues without a known token, by hour, and by whole day where `hour` is null."""
    return hours.groupingSets([list(BY_HOUR), ["day"]], *BY_HOUR).agg(
        *(F.hll_sketch_estimate(F.hll_union_agg(name)).alias(name) for name in ("tokens", "queues"))
    )


def cell_hours(
    sizes: Mapping[HourKey, int],
    whole_days: Mapping[str, int],
    known: Iterable[HourKey],
    *,
    newest: HourKey,
    smallest: int,
) -> dict[HourKey, int]:
    """The hour that each hour is counted with. Hours that are withheld are missing.

    `sizes` and `whole_days`: devices of hours and days with notifications. `known`: all hours with any event.
    """
    found: dict[HourKey, int] = {}
    by_day: dict[str, list[int]] = {}
    for day, hour in known:
        by_day.setdefault(day, []).append(hour)
    for day, hours in by_day.items():
        ordered = sorted(set(hours))
        if (day, ordered[-1]) == newest and sizes.get(newest, 0) < smallest:
            ordered.pop()
        large = [hour for hour in ordered if sizes.get((day, hour), 0) >= smallest]
        if not large and whole_days.get(day, 0) >= smallest:
            large = ordered[:1]
        for hour in ordered if large else ():
            earlier = [each for each in large if each <= hour]
            found[day, hour] = earlier[-1] if earlier else large[0]
    return found


def cells_of(hours: DataFrame, cell_hours: DataFrame, *, smallest: int) -> Cells:
    """`cell_hours`: `day`, `hour`, `cell_hour` and `by_queue`, whether queues stand for devices on that day."""
    named = hours.join(F.broadcast(cell_hours), on=list(BY_HOUR), how="inner")  # unique by hour
    devices = F.when(F.col("by_queue"), F.col("queues")).otherwise(F.col("tokens")).alias("devices")
    each = named.select("day", "hour", "cell_hour", *_plain(), devices)
    cell = ("day", "cell_hour")
    by_host = each.groupBy(*cell, "smp_host").agg(F.hll_union_agg("devices").alias("sketch"))
    measured = by_host.withColumn("devices", F.hll_sketch_estimate("sketch"))
    small = F.col("devices") < smallest
    whole = Window.partitionBy(*cell).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    pools = measured.select(
        "*",
        F.max(small).over(whole).alias("pooled"),
        number(F.when(small, F.col("sketch")), over=whole).alias("pool"),
        F.min(F.when(~small, F.struct("devices", "smp_host"))).over(whole).alias("least"),
    )
    joins = F.col("pooled") & (F.col("pool") < smallest) & (F.col("smp_host") == F.col("least.smp_host"))
    hidden = small | F.coalesce(joins, F.lit(False))
    host = F.when(hidden, F.lit(SMALL_GROUPS)).otherwise(F.col("smp_host")).alias("cell_host")
    hosts = pools.select(*cell, "smp_host", host)
    placed = each.join(F.broadcast(hosts), on=[*cell, "smp_host"], how="inner")  # unique by cell and host
    return Cells(_with_providers(placed, smallest), cell_hours.drop("by_queue"), smallest)


def _with_providers(placed: DataFrame, smallest: int) -> DataFrame:
    """Names providers only where each of a host's providers is large enough. Rows without one reached no provider."""
    cell = ["day", "cell_hour", "cell_host"]
    known = placed.where(F.col("provider") != "")
    sizes = known.groupBy(*cell, "provider").agg(number(F.col("devices")).alias("devices"))
    fine = sizes.groupBy(*cell).agg((F.min("devices") >= smallest).alias("fine"))
    joined = placed.join(F.broadcast(fine), on=cell, how="left")  # unique by cell
    named = F.coalesce("fine", F.lit(True)) | (F.col("provider") == "")
    provider = F.when(named, F.col("provider")).otherwise(F.lit(SMALL_GROUPS)).alias("cell_provider")
    return joined.select(*GROUP, "cell_hour", "cell_host", provider)


def in_cells(rows: DataFrame, cells: Cells | None) -> DataFrame:
    """Replaces hour, host and provider by those of the cell. Without cells, everything keeps its name."""
    if cells is None:
        return rows
    others = [name for name in rows.columns if name not in GROUP]
    plain = rows.select("day", "hour", *_plain(), *others)
    joined = plain.join(F.broadcast(cells.groups), on=list(GROUP), how="inner")  # unique by group
    host, provider = (F.nullif(F.col(name), F.lit("")) for name in ("cell_host", "cell_provider"))
    named = [F.col("cell_hour").alias("hour"), host.alias("smp_host"), provider.alias("provider")]
    return joined.select("day", *named, *others).select(*rows.columns)


def hosts_in_cells(rows: DataFrame, cells: Cells | None) -> DataFrame:
    """Like `in_cells` for rows without a provider. Hosts without notifications count as small ones."""
    if cells is None:
        return rows
    hosts = cells.groups.select(*BY_HOUR, "smp_host", "cell_host").distinct()
    hours = rows.join(F.broadcast(cells.hours), on=list(BY_HOUR), how="inner")  # unique by hour
    joined = hours.join(F.broadcast(hosts), on=[*BY_HOUR, "smp_host"], how="left")  # unique by hour and host
    others = [name for name in rows.columns if name not in ("day", "hour", "smp_host")]
    host = F.coalesce("cell_host", F.lit(SMALL_GROUPS)).alias("smp_host")
    return joined.select("day", F.col("cell_hour").alias("hour"), host, *others).select(*rows.columns)


def with_large_categories(
    counted: DataFrame, *, by: tuple[str, ...], category: str, size: str, smallest: int
) -> DataFrame:
    """Adds `shown`: the category, or `(small groups)` for small ones and the smallest of the others.

    Without that one, the difference between all categories and those shown would tell about the small ones.
    """
    small = F.col(size) < smallest
    whole = Window.partitionBy(*by).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    least = F.min(F.when(~small, F.struct(F.col(size), F.col(category)))).over(whole)
    joined = counted.select("*", F.max(small).over(whole).alias("_some"), least.alias("_least"))
    joins = F.col("_some") & (F.col(category) == F.col(f"_least.{category}"))
    hidden = small | F.coalesce(joins, F.lit(False))
    shown = F.when(hidden, F.lit(SMALL_GROUPS)).otherwise(F.col(category)).alias("shown")
    return joined.select(*counted.columns, shown)


def number(sketches: Column, *, over: WindowSpec | None = None) -> Column:
    """Aggregates sketches of devices to their number."""
    union = F.hll_union_agg(sketches)
    return F.coalesce(F.hll_sketch_estimate(union if over is None else union.over(over)), F.lit(0))


def _plain() -> list[Column]:
    """Null would match nothing in a join."""
    return [F.coalesce(name, F.lit("")).alias(name) for name in ("smp_host", "provider")]
