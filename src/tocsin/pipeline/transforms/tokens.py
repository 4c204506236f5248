"""Token changes and push outcomes → number of tokens per day and change."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS, TOKENS_DAILY
from tocsin.pipeline.transforms.notifications import code, reached, with_texts

DELETED = "DELETED"
PUSHED = "pushed"
DEAD = "dead"
NAMED = ("provider", "reason")
"""Text columns of notifications by which tokens are counted."""


def tokens_daily(
    events: DataFrame, notifications: DataFrame, *, names: Mapping[str, DataFrame], smallest: int
) -> DataFrame:
    """Status changes and pushes, with rare reasons counted together. `names`: texts of notifications by column."""
    both = token_changes_daily(events).unionByName(token_pushes_daily(notifications, names=names))
    return with_large_counts(both, smallest=smallest)


def token_changes_daily(events: DataFrame) -> DataFrame:
    """Counts `token_changed` events. In a status such as `INVALID,BAD` the reason follows the comma."""
    changed = events.where(F.col("stage") == Stage.TOKEN_CHANGED)
    status = F.coalesce(F.nullif("to_status", F.lit("")), F.lit(DELETED))
    parts = F.split(status, ",", 2)
    named = changed.select(
        "day",
        "provider",
        "token",
        parts[0].alias("change"),
        F.try_element_at(parts, F.lit(2)).alias("reason"),
    )
    counted = named.groupBy("day", "provider", "change", "reason")
    return counted.agg(F.count_distinct("token").alias("tokens")).select(*TOKENS_DAILY.names)


def token_pushes_daily(notifications: DataFrame, *, names: Mapping[str, DataFrame]) -> DataFrame:
    """`pushed`: a push was accepted. `dead`: pushes were tried and none was accepted; one of the reasons is kept.

    Texts stay hashed while tokens are counted (see `transforms.notifications`).
    """
    tried = reached(Stage.ATTEMPTED) | reached(Stage.FAILED)
    pushed = notifications.where(F.col("token").isNotNull() & (tried | reached(Stage.ACCEPTED)))
    by_token = pushed.groupBy("day", code(F.col("provider")).alias("provider"), "token").agg(
        F.max(reached(Stage.ACCEPTED)).alias("accepted"),
        F.max(F.when(tried, code(F.col("reason")))).alias("reason"),
    )
    change = F.when(F.col("accepted"), F.lit(PUSHED)).otherwise(F.lit(DEAD)).alias("change")
    why = F.when(~F.col("accepted"), F.col("reason")).alias("reason")
    counted = by_token.groupBy("day", "provider", change, why).agg(F.count("*").alias("tokens"))
    return with_texts(counted, names={name: names[name] for name in NAMED}).select(*TOKENS_DAILY.names)


def with_large_counts(tokens: DataFrame, *, smallest: int) -> DataFrame:
    """Counts reasons with few tokens together."""
    small = F.col("reason").isNotNull() & (F.col("tokens") < smallest)
    reason = F.when(small, F.lit(SMALL_GROUPS)).otherwise(F.col("reason"))
    merged = tokens.withColumn("reason", reason).groupBy("day", "provider", "change", "reason")
    return merged.agg(F.sum("tokens").alias("tokens")).select(*TOKENS_DAILY.names)
