"""Synthetic exports of an NTF router and of SMP routers that nearly agree, equal for equal seeds."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.pipeline.schemas.queue_exports import NOTIFIERS, SUBSCRIPTIONS
from tocsin.pipeline.synthetic.draws import Draws


@dataclass(frozen=True, slots=True)
class SyntheticQueues:
    seed: int = 1
    servers: int = 2000
    drifting: int = 10
    """Number of servers that lack some queues."""
    missing: int = 100
    """A drifting server lacks one queue in this many."""
    taken_at: int = 1_794_744_000


def subscribed_queues(numbers: DataFrame, queues: SyntheticQueues) -> DataFrame:
    """`numbers` has a column `id`, one row per queue. Rows of `tocsin ntf store export-subscriptions`."""
    columns = {
        **_shared(queues),
        "wanted": F.lit(True),
        "associated": F.lit(True),
        "token_active": F.lit(True),
        "status": F.lit("ACTIVE"),
    }
    return numbers.select(*(columns[name].alias(name) for name in SUBSCRIPTIONS.names))


def notifier_queues(numbers: DataFrame, queues: SyntheticQueues) -> DataFrame:
    """The same queues as SMP routers export them, without those that drifted."""
    columns = _shared(queues)
    drifted = (_server(queues) < queues.drifting) & (
        F.pmod(Draws(queues.seed).number("missing"), F.lit(queues.missing)) == 0
    )
    return numbers.where(~drifted).select(*(columns[name].alias(name) for name in NOTIFIERS.names))


def _shared(queues: SyntheticQueues) -> dict[str, Column]:
    server = _server(queues)
    digits = F.sha2(F.concat(F.lit(f"{queues.seed} id "), F.col("id").cast("string")).cast("binary"), 256)
    return {
        "server": server,
        "id_high": Draws(queues.seed).number("high"),
        "id_low": Draws(queues.seed).number("low"),
        "service": server + F.lit(1),
        "router": F.concat(F.lit("smp://AAEC@smp"), server.cast("string"), F.lit(".example")),
        "notifier_id": F.substring(digits, 1, 32),
        "taken_at": F.lit(queues.taken_at).cast("long"),
    }


def _server(queues: SyntheticQueues) -> Column:
    return F.pmod(Draws(queues.seed).number("server"), F.lit(queues.servers).cast("long"))
