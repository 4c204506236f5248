"""Token changes and push outcomes → number of tokens per day and change."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS, TOKENS_DAILY
from tocsin.pipeline.transforms.notifications import code, reached, with_texts
from tocsin.pipeline.transforms.small_groups import with_large_categories

DELETED = "DELETED"
PUSHED = "pushed"
DEAD = "dead"
BY = ("day", "provider", "change")
NAMED = ("provider", "reason")
"""Text columns of notifications by which tokens are counted."""


def token_counts(
    events: DataFrame, notifications: DataFrame, *, texts: Mapping[str, Collection[str]], smallest: int
) -> DataFrame:
    """Status changes and pushes, before `with_large_counts`. `texts`: those of notifications by column."""
    pushes = token_pushes_daily(notifications, texts=texts)
    return token_changes_daily(events, smallest=smallest).unionByName(pushes)


def token_changes_daily(events: DataFrame, *, smallest: int) -> DataFrame:
    """Counts `token_changed` events. In a status such as `INVALID,BAD` the reason follows the comma.

    A token may change for several reasons, so tokens of rare reasons are counted together before they are counted.
    """
    changed = events.where(F.col("stage") == Stage.TOKEN_CHANGED)
    status = F.coalesce(F.nullif("to_status", F.lit("")), F.lit(DELETED))
    parts = F.split(status, ",", 2)
    reason = F.coalesce(F.try_element_at(parts, F.lit(2)), F.lit("")).alias("reason")
    provider = F.coalesce("provider", F.lit("")).alias("provider")
    named = changed.select("day", provider, "token", parts[0].alias("change"), reason)
    if smallest > 1:
        sizes = named.groupBy(*BY, "reason").agg(F.count_distinct("token").alias("tokens"))
        shown = with_large_categories(sizes, by=BY, category="reason", size="tokens", smallest=smallest)
        rare = F.broadcast(shown.drop("tokens"))
        joined = named.join(rare, on=[*BY, "reason"], how="inner")  # unique by reason
        named = joined.withColumn("reason", F.col("shown"))
    tokens = named.groupBy(*BY, "reason").agg(F.count_distinct("token").alias("tokens"))
    texts = [F.nullif(F.col(name), F.lit("")).alias(name) for name in ("provider", "reason")]
    return tokens.select("day", "change", "tokens", *texts).select(*TOKENS_DAILY.names)


def token_pushes_daily(notifications: DataFrame, *, texts: Mapping[str, Collection[str]]) -> DataFrame:
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
    return with_texts(counted, texts={name: texts.get(name, ()) for name in NAMED}).select(
        *TOKENS_DAILY.names
    )


def with_large_counts(tokens: DataFrame, *, smallest: int) -> DataFrame:
    """Counts reasons of few tokens together, then providers of few tokens, and leaves out what is still too small.

    Everything is shown as it is if a single token is enough.
    """
    if smallest <= 1:
        return tokens.select(*TOKENS_DAILY.names)
    plain = tokens.withColumn("reason", F.coalesce("reason", F.lit("")))
    shown = with_large_categories(plain, by=BY, category="reason", size="tokens", smallest=smallest)
    by_reason = shown.groupBy(*BY, F.nullif(F.col("shown"), F.lit("")).alias("reason"))
    merged = by_reason.agg(F.sum("tokens").alias("tokens"))
    small = F.col("tokens") < smallest
    provider = F.when(small, F.lit(SMALL_GROUPS)).otherwise(F.col("provider")).alias("provider")
    reason = F.when(small, F.lit(SMALL_GROUPS)).otherwise(F.col("reason")).alias("reason")
    pooled = merged.select("day", provider, "change", reason, "tokens").groupBy(*BY, "reason")
    return pooled.agg(F.sum("tokens").alias("tokens")).where(~small).select(*TOKENS_DAILY.names)
