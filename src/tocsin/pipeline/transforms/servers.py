"""The health of every SMP host, by hour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.hourly import SERVERS_HOURLY
from tocsin.pipeline.transforms.device_sets import DeviceSets, joined_sets, sets_of
from tocsin.pipeline.transforms.hour_counts import COUNTS, HourCounts
from tocsin.pipeline.transforms.row_columns import GREATEST, LEAST, Numbers, numbers_of, texts_of
from tocsin.pipeline.transforms.small_groups import UNPLACED, Cells
from tocsin.pipeline.transforms.table_columns import Columns, columns_of

SUBSCRIBED: Final = "ACTIVE"
UNSUBSCRIBED: Final = ("INACTIVE", "END", "DELETED", "SERVICE")
PENDING: Final = ("NEW", "PENDING")
STORM: Final = 2.0
"""Subscriptions per queue within an hour above which queues were resubscribed repeatedly."""
STAGE_COUNTS: Final = (Stage.ENQUEUED, Stage.SENT, Stage.RECEIVED, Stage.UNKNOWN_QUEUE)
CHANGE_COUNTS: Final = ("subscribed", "unsubscribed", "errors")
MINUTES: Final = 60
Host = tuple[int, str | None]
"""Hour and SMP host."""


class HostChange(NamedTuple):
    """Counts of an SMP host's subscriptions."""

    hour: int
    smp_host: str


@dataclass(frozen=True, slots=True)
class ChangedSubscriptions:
    """Changes of subscriptions in hours of one day."""

    hosts: Sequence[HostChange]
    changes: Numbers
    """By host, and by name in CHANGE_COUNTS."""
    queues: DeviceSets
    """By host."""


def count_subscription_changes(events: pa.Table, hour: int) -> ChangedSubscriptions:
    """`events`: all subscription changes of an hour, with `id`, `smp_host`, `to_status` and `queue`.

    Counts ids: a change that was written or read twice is one change.
    """
    rows = events.filter(events["smp_host"].is_valid())
    codes, texts = texts_of(rows["smp_host"])
    found, host = np.unique(codes, return_inverse=True)
    names = [texts[code] for code in found.tolist()]  # other events of the file may have other hosts
    status = rows["to_status"]
    none = pc.is_null(status)
    fine = pc.is_in(status, pa.array([SUBSCRIBED, *UNSUBSCRIBED, *PENDING]))
    kinds = (
        pc.fill_null(pc.equal(status, SUBSCRIBED), False),
        pc.or_(none, pc.is_in(status, pa.array(UNSUBSCRIBED))),
        pc.invert(pc.or_(none, fine)),
    )
    changes = np.zeros((len(names), len(CHANGE_COUNTS)), np.int64)
    for at, holds in enumerate(kinds):
        chosen = pa.table({"host": pa.array(host), "id": rows["id"]}).filter(
            pc.and_(holds, rows["id"].is_valid())
        )
        ids = chosen.group_by(["host", "id"], use_threads=False).aggregate([])
        np.add.at(changes[:, at], ids["host"].to_numpy(), 1)
    queue = numbers_of(rows["queue"])
    known = queue != LEAST
    hosts = [HostChange(hour, name) for name in names]
    return ChangedSubscriptions(hosts, changes, sets_of(host[known], queue[known]))


def servers_hourly(
    subscriptions: Iterable[ChangedSubscriptions], counts: HourCounts, cells: Cells
) -> Columns:
    """One row per hour and SMP host with any activity."""
    hosts: dict[Host, int] = {}
    number_of_group = np.full(len(counts.groups), UNPLACED, np.int64)
    for at, cell in enumerate(cells.number_of_group.tolist()):
        if cell != UNPLACED and (name := cells.cells[cell].smp_host) is not None:
            number_of_group[at] = hosts.setdefault((cells.cells[cell].hour, name), len(hosts))
    measured = len(hosts)
    known = list(subscriptions)
    number_of_change = [np.full(len(part.hosts), UNPLACED, np.int64) for part in known]
    for part, own in zip(known, number_of_change, strict=True):
        for at, change in enumerate(part.hosts):
            if (place := cells.place(*change)) is not None and place[1] is not None:
                own[at] = hosts.setdefault(place, len(hosts))
    stages, minutes, skew_us = _measured(counts, number_of_group, len(hosts))
    changes = np.zeros((len(hosts), len(CHANGE_COUNTS)), np.int64)
    for part, own in zip(known, number_of_change, strict=True):
        np.add.at(changes, own[own != UNPLACED], part.changes[own != UNPLACED])
    queues = joined_sets((part.queues, own) for part, own in zip(known, number_of_change, strict=True)).sizes(
        len(hosts)
    )
    rows: list[tuple[Any, ...]] = []
    for (hour, host), at in hosts.items():
        # Without notifications no token is known, and a queue stands for a device.
        if cells.hours is None or at < measured or queues[at] >= cells.smallest:
            subscribed = int(changes[at, 0])
            gap = longest_gap(int(minutes[at])) * MINUTES if minutes[at] else None
            skew = None if skew_us[at] == GREATEST else int(skew_us[at])
            storm = bool(queues[at]) and subscribed > STORM * queues[at]
            rows.append(
                (hour, host, *stages[at].tolist(), *changes[at].tolist(), queues[at], gap, skew, storm)
            )
    names = (
        "hour",
        "smp_host",
        *STAGE_COUNTS,
        *CHANGE_COUNTS,
        "queues_changed",
        "longest_gap_seconds",
        "skew_us",
    )
    assert {*names, "storm", "day"} == set(SERVERS_HOURLY.names)
    return columns_of((*names, "storm"), rows)


def _measured(counts: HourCounts, number_of: Numbers, count: int) -> tuple[Numbers, Numbers, Numbers]:
    """Counts of stages, minutes with traffic, and the shortest time from sent to received, by host."""
    placed = number_of != UNPLACED
    stages = np.zeros((count, len(STAGE_COUNTS)), np.int64)
    minutes, skew_us = np.zeros(count, np.int64), np.full(count, GREATEST, np.int64)
    chosen = counts.counts[:, [COUNTS.index(stage) for stage in STAGE_COUNTS]]
    np.add.at(stages, number_of[placed], chosen[placed])
    np.bitwise_or.at(minutes, number_of[placed], counts.minutes[placed])
    np.minimum.at(skew_us, number_of[placed], counts.skew_us[placed])
    return stages, minutes, skew_us


def longest_gap(minutes: int) -> int:
    """Longest run of minutes without a notification between two minutes with one."""
    return max(map(len, f"{minutes:b}".strip("0").split("1")))
