"""Changes of tokens and what became of their pushes → how many tokens did what on a day."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tocsin.observability.delivery_events import Stage
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS, TOKENS_DAILY
from tocsin.pipeline.transforms.notifications import reached

DELETED = "DELETED"
PUSHED = "pushed"
DEAD = "dead"


def tokens_daily(events: DataFrame, notifications: DataFrame, *, smallest: int) -> DataFrame:
    """Both kinds, and reasons of few tokens counted together."""
    both = token_changes_daily(events).unionByName(token_pushes_daily(notifications))
    return with_large_counts(both, smallest=smallest)


def token_changes_daily(events: DataFrame) -> DataFrame:
    """From `token_changed` events. A status is written like `INVALID,BAD`: its reason is what follows the comma."""
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
    return _counted(named)


def token_pushes_daily(notifications: DataFrame) -> DataFrame:
    """`pushed`: a push of theirs was accepted. `dead`: some were tried, none was accepted."""
    tried = notifications.where(reached(Stage.ATTEMPTED) | reached(Stage.ACCEPTED) | reached(Stage.FAILED))
    by_token = tried.groupBy("day", "provider", "token").agg(
        F.max(reached(Stage.ACCEPTED)).alias("accepted"), F.max("reason").alias("why")
    )
    change = F.when(F.col("accepted"), F.lit(PUSHED)).otherwise(F.lit(DEAD))
    reason = F.when(~F.col("accepted"), F.col("why"))
    return _counted(
        by_token.select("day", "provider", "token", change.alias("change"), reason.alias("reason"))
    )


def with_large_counts(tokens: DataFrame, *, smallest: int) -> DataFrame:
    """Reasons of few tokens are counted together."""
    small = F.col("reason").isNotNull() & (F.col("tokens") < smallest)
    reason = F.when(small, F.lit(SMALL_GROUPS)).otherwise(F.col("reason"))
    merged = tokens.withColumn("reason", reason).groupBy("day", "provider", "change", "reason")
    return merged.agg(F.sum("tokens").alias("tokens")).select(*TOKENS_DAILY.names)


def _counted(named: DataFrame) -> DataFrame:
    counted = named.groupBy("day", "provider", "change", "reason")
    return counted.agg(F.count_distinct("token").alias("tokens")).select(*TOKENS_DAILY.names)
