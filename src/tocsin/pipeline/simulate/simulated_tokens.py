"""Numbers → devices of a simulated population, and sums over them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tocsin.pipeline.simulate.demand import PopulationSums
from tocsin.pipeline.simulate.population import Population
from tocsin.pipeline.synthetic.draws import Draws

DAY: Final = 86_400.0
Z95: Final = 1.96
PORTION: Final = 5_000_000
"""Devices that one query draws, between two words about the progress."""
SQUARES: Final = "squares"
SUMMED: Final = ("queues", "subscribed", "messages", "notifications", "pushes", "pushes_unneeded")


def simulated_tokens(numbers: DataFrame, population: Population) -> DataFrame:
    """`numbers` has a column `id`, one row per device. Each row depends only on the seed and its number."""
    draw = Draws(population.seed)
    contacts = draw.geometric("contacts", population.contacts_per_token)
    groups = draw.geometric("groups", population.groups_per_token)
    others = draw.scattered("size", 1.0) * (population.group_size - 1)
    drawn = numbers.select(
        "id",
        contacts.alias("contacts"),
        (groups * others).alias("members"),
        draw.scattered("activity", population.activity_spread).alias("activity"),
        (draw.uniform("online") * 2 * population.online).alias("online"),
    )
    queues = F.col("contacts") + F.col("members")
    messages = (
        F.col("contacts") * population.messages_per_contact
        + F.col("members") * population.messages_per_member
    ) * F.col("activity")
    counted = drawn.select("id", "online", queues.alias("queues"), messages.alias("messages"))
    unmuted = 1 - population.muted
    notifications = F.col("messages") * unmuted
    # A push takes a while; notifications that arrive meanwhile share the next push.
    pushes = notifications / (1 + notifications * (population.push_seconds / DAY))
    return counted.select(
        "id",
        "queues",
        (F.col("queues") * unmuted).alias("subscribed"),
        "messages",
        notifications.alias("notifications"),
        pushes.alias("pushes"),
        (pushes * F.col("online")).alias("pushes_unneeded"),
    )


def sums_between(tokens: DataFrame, *, ends: Sequence[int]) -> DataFrame:
    """One row for each part that has devices: `part`, sums, and the sum of the squares of pushes.

    Part 0 has the devices before the first of the `ends`, part 1 those from there to the second, and so on.
    """
    part = F.lit(0)
    for end in ends:
        part = part + F.when(F.col("id") >= end, 1).otherwise(0)
    squares = F.sum(F.col("pushes") * F.col("pushes")).alias(SQUARES)
    return tokens.groupBy(part.alias("part")).agg(*(F.sum(name).alias(name) for name in SUMMED), squares)


def simulated(
    spark: SparkSession,
    population: Population,
    sizes: Sequence[int],
    rows: int,
    shown: Callable[[str], None] = lambda _: None,
) -> list[PopulationSums]:
    """Sums for populations of these sizes: a population contains all smaller ones.

    Every device is a row that Spark makes, adds up and forgets, so memory does not grow with their number. At most
    `rows` devices are drawn; sums of larger populations are scaled up from them.
    """
    drawn = [min(size, rows) for size in sizes]
    ends = sorted(set(drawn))
    parts: list[Counter[str]] = [Counter() for _ in ends]
    for start in range(0, ends[-1], PORTION):
        stop = min(start + PORTION, ends[-1])
        shown(f"drawing devices: {stop:,} of {ends[-1]:,}")
        tokens = simulated_tokens(spark.range(start, stop), population)
        for row in sums_between(tokens, ends=[end for end in ends if end < stop]).collect():
            parts[row["part"]].update({name: row[name] for name in (*SUMMED, SQUARES)})
    until = dict(zip(ends, accumulate(parts, _added), strict=True))
    return [_sums(size, number, until[number]) for size, number in zip(sizes, drawn, strict=True)]


def _added(one: Counter[str], other: Counter[str]) -> Counter[str]:
    return Counter({name: one[name] + other[name] for name in (*SUMMED, SQUARES)})


def _sums(tokens: int, drawn: int, found: Mapping[str, float]) -> PopulationSums:
    weight = tokens / drawn
    values = {name: found[name] * weight for name in SUMMED}
    error = _error(found["pushes"], found[SQUARES], drawn, tokens)
    return PopulationSums(tokens, **values, error=error, drawn=drawn)


def _error(total: float, squares: float, drawn: int, tokens: int) -> float:
    """Half the 95 % interval of a sum scaled up from a sample, as a share of the sum. 0 if all devices were drawn."""
    if drawn == tokens or not total:
        return 0.0
    mean = total / drawn
    variance = max(squares / drawn - mean * mean, 0.0) * drawn / (drawn - 1)
    return Z95 * math.sqrt(variance / drawn * (1 - drawn / tokens)) / mean
