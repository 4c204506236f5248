"""Numbers → devices of a simulated population, and sums over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tocsin.pipeline.simulate.population import Population
from tocsin.pipeline.synthetic.draws import Draws

DAY: Final = 86_400.0
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
