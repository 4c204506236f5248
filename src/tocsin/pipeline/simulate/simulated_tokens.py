"""Numbers → devices of a simulated population, and sums over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tocsin.pipeline.simulate.demand import PopulationSums
from tocsin.pipeline.simulate.population import Population
from tocsin.pipeline.synthetic.draws import Draws

DAY: Final = 86_400.0
Z95: Final = 1.96
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


def sums_of_first(tokens: DataFrame, *, numbers: Sequence[int]) -> DataFrame:
    """One row: for each number n, sums over the first n devices (`pushes_n`, …) and of the squares of pushes."""
    return tokens.agg(
        *(
            F.sum(F.when(F.col("id") < number, F.col(name)).otherwise(0.0)).alias(f"{name}_{number}")
            for number in numbers
            for name in SUMMED
        ),
        *(
            F.sum(F.when(F.col("id") < number, F.col("pushes") * F.col("pushes")).otherwise(0.0)).alias(
                f"squares_{number}"
            )
            for number in numbers
        ),
    )


def simulated(
    spark: SparkSession,
    population: Population,
    sizes: Sequence[int],
    rows: int,
    shown: Callable[[str], None] = lambda _: None,
) -> list[PopulationSums]:
    """Sums for populations of these sizes. At most `rows` devices are drawn; larger sums are scaled up."""
    drawn = [min(size, rows) for size in sizes]
    shown(f"drawing {max(drawn):,} devices")
    tokens = simulated_tokens(spark.range(max(drawn)), population)
    row = sums_of_first(tokens, numbers=sorted(set(drawn))).collect()[0]
    return [_sums(size, number, row.asDict()) for size, number in zip(sizes, drawn, strict=True)]


def _sums(tokens: int, drawn: int, row: dict[str, float]) -> PopulationSums:
    weight = tokens / drawn
    values = {name: row[f"{name}_{drawn}"] * weight for name in SUMMED}
    return PopulationSums(
        tokens, **values, error=_error(row[f"pushes_{drawn}"], row[f"squares_{drawn}"], drawn, tokens)
    )


def _error(total: float, squares: float, drawn: int, tokens: int) -> float:
    """Half the 95 % interval of a sum scaled up from a sample, as a share of the sum. 0 if all devices were drawn."""
    if drawn == tokens or not total:
        return 0.0
    mean = total / drawn
    variance = max(squares / drawn - mean * mean, 0.0) * drawn / (drawn - 1)
    return Z95 * math.sqrt(variance / drawn * (1 - drawn / tokens)) / mean
