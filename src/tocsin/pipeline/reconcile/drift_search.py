"""Finds the queues about which routers disagree: numbers for the table `drift`, names for a repair plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tocsin.events.repair_plans import DriftKind, RepairAction, RepairEntry
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import DRIFT_TABLE
from tocsin.pipeline.reconcile.export_files import Exports, host_of
from tocsin.pipeline.reconcile.server_sums import QueueSum, ServerSums, sums_of_servers
from tocsin.pipeline.spark.cached_rows import cached
from tocsin.pipeline.transforms.drift import (
    ENTRY,
    SUMS,
    drift_counts,
    drift_table,
    drifted_queues,
    notifier_sums,
    subscribed_sums,
)

COUNTS = "server long, kind string, action string, queues long"
HOSTS = "server long, smp_host string, subscribed long"


@dataclass(frozen=True, slots=True)
class DriftFindings:
    servers: dict[int, ServerSums]
    """The SMP routers that were compared."""
    not_compared: int
    """Number of SMP routers with subscriptions but without an export."""
    differing: frozenset[int] = frozenset()
    counts: list[tuple[int, str, str, int]] = field(default_factory=list)
    """Server, kind, action, queues."""
    drifted: DataFrame | None = None

    @property
    def queues(self) -> int:
        return sum(row[3] for row in self.counts)

    def by(self, place: int) -> Counter[str]:
        """Queues by one of the other fields of `counts`."""
        counted: Counter[str] = Counter()
        for row in self.counts:
            counted[str(row[place])] += row[3]
        return counted


@contextmanager
def reconcile(
    spark: SparkSession, exports: Exports, shown: Callable[[str], None] = lambda _: None
) -> Iterator[DriftFindings]:
    """Compares queues one by one only for routers whose sums differ. The body may read the drifted queues again."""
    shown("summing notifiers of SMP routers")
    notifiers = [
        (row["server"], row["service"], _sum(row)) for row in notifier_sums(exports.notifiers).collect()
    ]
    shown("summing subscriptions")
    subscribed = [
        (row["server"], row["service"], row["wanted"], row["associated"], _sum(row))
        for row in subscribed_sums(exports.subscriptions).collect()
    ]
    sums = sums_of_servers(subscribed, notifiers)
    compared = {server: sums.get(server, ServerSums()) for server in exports.routers}
    not_compared = sum(1 for server, each in sums.items() if server not in compared and each.subscribed)
    differing = frozenset(server for server, each in compared.items() if each.differs)
    if not differing:
        yield DriftFindings(compared, not_compared)
        return
    shown(f"comparing queues of {len(differing)} SMP routers")
    is_differing = F.col("server").isin(*differing)
    services = spark.createDataFrame(
        [(server, compared[server].service) for server in differing], "server long, ours long"
    )
    with cached(
        drifted_queues(
            exports.subscriptions.where(is_differing), exports.notifiers.where(is_differing), services
        )
    ) as drifted:
        counts = [
            (row["server"], row["kind"], row["action"], row["queues"])
            for row in drift_counts(drifted).collect()
        ]
        yield DriftFindings(compared, not_compared, differing, counts, drifted)


def entries(found: DriftFindings) -> Iterator[RepairEntry]:
    if found.drifted is None:
        return
    for row in found.drifted.select(*ENTRY).toLocalIterator():
        yield RepairEntry(
            RepairAction(row["action"]),
            DriftKind(row["kind"]),
            row["router"],
            row["notifier_id"],
            row["status"],
            row["associated"],
        )


def publish(
    spark: SparkSession,
    lake: Lake,
    exports: Exports,
    found: DriftFindings,
    now: datetime,
    smallest_group: int,
) -> None:
    """Replaces the findings of an earlier run on the same day."""
    hosts = [
        (server, host_of(exports.routers[server]), sums.subscribed) for server, sums in found.servers.items()
    ]
    day = now.date().isoformat()
    rows = drift_table(
        spark.createDataFrame(found.counts, COUNTS),
        spark.createDataFrame(hosts, HOSTS),
        day=day,
        smallest=smallest_group,
    )
    lake.table(DRIFT_TABLE).publish(rows.coalesce(1), replacing=[(day,)])


def _sum(row: Row) -> QueueSum:
    return QueueSum(*(row[name] for name in SUMS))
