"""Synthetic delivery events: any number of notifications, equal for equal seeds however the rows are split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField

from tocsin.events.delivery_events import SCHEMA_VERSION, Stage
from tocsin.pipeline.schemas.events import DEFAULTS, EVENT_LINE
from tocsin.pipeline.synthetic.draws import Draws

MICROSECONDS: Final = 1_000_000
DAY: Final = 86_400
REASONS: Final = ("token_invalid", "expired", "Refused", "503")
EVENTS_EACH: Final = 4.9
"""Events per notification, approximately."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Shares of all notifications by fate. The rest is accepted at the first attempt."""

    seed: int = 1
    began_at: int = 1_794_700_800
    """Seconds since 1970, the start of a day."""
    seconds: int = DAY
    tokens: int = 100_000
    queues_per_token: int = 20
    hosts: int = 40
    superseded: float = 0.12
    failed: float = 0.01
    shed: float = 0.001
    pending: float = 0.002
    unknown: float = 0.003


def delivery_events(numbers: DataFrame, traffic: Traffic) -> DataFrame:
    """`numbers` has a column `id`, one row per notification. Returns a row per stage, as routers write them."""
    notifications = _notifications(numbers, traffic)
    stages = F.array_compact(F.array(*(_stage(*each) for each in _PATH)))
    events = notifications.select("*", F.explode(stages).alias("event"))
    period = F.concat(F.floor(F.col("began") / (DAY * MICROSECONDS)).cast("string"), F.lit("-5eed5eed"))
    number = F.when(F.col("event.stage") == Stage.ATTEMPTED, F.lit(".1")).otherwise(F.lit(""))
    columns: dict[str, Column] = {name: F.lit(value) for name, value in DEFAULTS.items()} | {
        "id": F.concat("notification", F.lit("."), "event.stage", number),
        "stage": F.col("event.stage"),
        "at": F.col("event.at"),
        "mono": F.col("event.at") - F.lit(traffic.began_at * MICROSECONDS),
        "router": F.when(F.col("event.smp"), F.concat(F.lit("smp-"), "smp_host")).otherwise(F.lit("ntf-1")),
        "period": period,
        "version": F.lit(SCHEMA_VERSION),
        "notification": F.col("notification"),
        "queue": F.col("queue"),
        "token": F.when(~F.col("event.smp") & (F.col("fate") != "unknown"), F.col("token")),
        "smp_host": F.col("smp_host"),
        "provider": F.when(~F.col("event.smp") & (F.col("fate") != "unknown"), F.lit("apns_prod")),
        "reason": F.when(F.col("event.stage") == Stage.FAILED, F.col("failure")),
        "attempt": F.when(F.col("event.stage").isin(Stage.ATTEMPTED, Stage.ACCEPTED), 1).otherwise(0),
        "engine": F.when(
            F.col("event.stage").isin(Stage.ATTEMPTED, Stage.ACCEPTED, Stage.FAILED), F.lit("inline")
        ),
        "size": F.when(F.col("event.stage") == Stage.RECEIVED, 132).otherwise(0),
    }
    return events.select(*(_as_written(columns[field.name], field) for field in EVENT_LINE.fields))


def _as_written(column: Column, field: StructField) -> Column:
    """Routers omit empty fields."""
    cast = column.cast(field.dataType)
    given = F.nullif(cast, F.lit("")) if isinstance(field.dataType, StringType) else cast
    return given.alias(field.name)


def _notifications(numbers: DataFrame, traffic: Traffic) -> DataFrame:
    """The columns that do not depend on the stage."""
    draw = Draws(traffic.seed)
    token_number = draw.below("token", traffic.tokens)
    queue_number = token_number * traffic.queues_per_token + draw.below("queue", traffic.queues_per_token)
    named = numbers.select(
        "id", token_number.alias("t"), queue_number.alias("q"), draw.share("fate").alias("f")
    )
    began = F.lit(traffic.began_at * MICROSECONDS) + draw.below("began", traffic.seconds * MICROSECONDS)
    delays = {
        f"d{span}": draw.delay(f"d{span}", usual) for span, usual in enumerate((400, 900, 1500, 60_000))
    }
    return named.select(
        "id",
        pseudonym(traffic.seed, "n", F.col("id")).alias("notification"),
        pseudonym(traffic.seed, "q", F.col("q")).alias("queue"),
        pseudonym(traffic.seed, "t", F.col("t")).alias("token"),
        F.concat(
            F.lit("smp"), F.pmod(F.xxhash64("q"), F.lit(traffic.hosts)).cast("string"), F.lit(".example")
        ).alias("smp_host"),
        _fate(F.col("f"), traffic).alias("fate"),
        F.element_at(
            F.array(*map(F.lit, REASONS)), (draw.below("reason", len(REASONS)) + 1).cast("int")
        ).alias("failure"),
        began.alias("began"),
        *(column.alias(name) for name, column in delays.items()),
    )


def _fate(share: Column, traffic: Traffic) -> Column:
    least = 0.0
    fate = F.when(F.lit(False), F.lit(""))
    for name in ("superseded", "failed", "shed", "pending", "unknown"):
        least += getattr(traffic, name)
        fate = fate.when(share < least, F.lit(name))
    return fate.otherwise(F.lit("accepted"))


# Stage, whether the SMP router writes it, number of delays since the beginning, fates that come this far.
_ATTEMPTED: Final = ("accepted", "failed")
_PATH: Final[tuple[tuple[Stage, bool, int, tuple[str, ...]], ...]] = (
    (Stage.ENQUEUED, True, 0, ()),
    (Stage.SENT, True, 1, ()),
    (Stage.RECEIVED, False, 2, ("accepted", "superseded", "failed", "shed", "pending")),
    (Stage.UNKNOWN_QUEUE, False, 2, ("unknown",)),
    (Stage.ATTEMPTED, False, 3, _ATTEMPTED),
    (Stage.ACCEPTED, False, 4, ("accepted",)),
    (Stage.FAILED, False, 4, ("failed",)),
    (Stage.SUPERSEDED, False, 3, ("superseded",)),
    (Stage.SHED, False, 4, ("shed",)),
)


def _stage(stage: Stage, smp: bool, delays: int, fates: tuple[str, ...]) -> Column:
    at = F.col("began")
    for span in range(delays):
        at = at + F.col(f"d{span}")
    event = F.struct(F.lit(str(stage)).alias("stage"), F.lit(smp).alias("smp"), at.alias("at"))
    return F.when(F.col("fate").isin(*fates), event) if fates else event


def pseudonym(seed: int, kind: str, number: Column) -> Column:
    """22 base64url characters derived from a number, like real pseudonyms."""
    digest = F.unhex(F.md5(F.concat(F.lit(f"{seed}{kind}"), number.cast("string")).cast("binary")))
    return F.translate(F.substring(F.base64(digest), 1, 22), "+/", "-_")
