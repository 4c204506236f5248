"""The cells that hourly tables count by: groups of an hour, an SMP host and a provider, each of enough devices.

Theory of operation. Every notification belongs to exactly one cell, and every cell holds at least `smallest` devices.
All figures that anyone sees are figures of whole cells or sums of them. So the difference of two figures is a sum of
whole cells again, and never tells about fewer devices (docs/explanation/small-groups.md). Three steps make the cells:

1. An hour with too few devices is counted with the last earlier hour of its day that has enough, or with the first that
   has. A day without such an hour is one cell if it has enough devices, and is withheld otherwise. The newest hour of
   all waits until it has enough, or until a later hour begins.
2. SMP hosts with too few devices within the hours of a cell are counted together. If all of them together have too few,
   the smallest of the other hosts joins them.
3. Providers of a host are counted together unless each of them has enough devices.

A device is a token. On days without any token, when only an SMP router wrote events, a queue stands for a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from tocsin.pipeline.schemas.hourly import SMALL_GROUPS
from tocsin.pipeline.transforms.device_sets import DeviceSets
from tocsin.pipeline.transforms.hour_counts import Group, HourCounts
from tocsin.pipeline.transforms.row_columns import Numbers

HourKey = tuple[str, int]
"""Day and hour."""
UNPLACED: Final = -1
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Cells:
    """Says to which cell each group of a day belongs."""

    cells: Sequence[Group]
    number_of_group: Numbers
    """The cell of each group, UNPLACED for groups that are withheld."""
    hours: Mapping[int, int] | None
    """The hour that each hour is counted with; None if every hour is counted by itself."""
    hosts: Mapping[tuple[int, str], str | None]
    """By hour and host (empty instead of none): the host of the cell."""
    smallest: int

    def place(self, hour: int, host: str) -> tuple[int, str | None] | None:
        """Hour and host of the cell that counts what is not about a notification, None if it is withheld.

        Hosts without notifications count as small ones.
        """
        if self.hours is None:
            return hour, host
        if hour not in self.hours:
            return None
        return self.hours[hour], self.hosts.get((hour, host), SMALL_GROUPS)


@dataclass(frozen=True, slots=True)
class DaySizes:
    """Numbers of devices of a day with notifications."""

    by_hour: Mapping[int, int]
    whole: int
    by_queue: bool
    """Whether queues stand for devices, because no token is known."""


def sizes_of(counts: HourCounts) -> DaySizes:
    hours = sorted({group.hour for group in counts.groups})
    at = {hour: number for number, hour in enumerate(hours)}
    by_hour = np.array([at[group.hour] for group in counts.groups], np.int64)
    tokens, queues = counts.tokens_by(by_hour), counts.queues.united(by_hour)
    day = np.zeros(len(hours), np.int64)
    [whole_tokens], [whole_queues] = (each.united(day).sizes(1) for each in (tokens, queues))
    by_queue = not whole_tokens
    sizes = (queues if by_queue else tokens).sizes(len(hours))
    return DaySizes(
        dict(zip(hours, sizes, strict=True)), whole_queues if by_queue else whole_tokens, by_queue
    )


def cell_hours(
    sizes: Mapping[HourKey, int],
    whole_days: Mapping[str, int],
    known: Iterable[HourKey],
    *,
    newest: HourKey,
    smallest: int,
) -> dict[HourKey, int]:
    """The hour that each hour is counted with. Hours that are withheld are missing.

    `sizes` and `whole_days`: devices of hours and days with notifications. `known`: all hours with any event.
    """
    found: dict[HourKey, int] = {}
    by_day: dict[str, list[int]] = {}
    for day, hour in known:
        by_day.setdefault(day, []).append(hour)
    for day, hours in by_day.items():
        ordered = sorted(set(hours))
        if (day, ordered[-1]) == newest and sizes.get(newest, 0) < smallest:
            ordered.pop()
        large = [hour for hour in ordered if sizes.get((day, hour), 0) >= smallest]
        if not large and whole_days.get(day, 0) >= smallest:
            large = ordered[:1]
        for hour in ordered if large else ():
            earlier = [each for each in large if each <= hour]
            found[day, hour] = earlier[-1] if earlier else large[0]
    return found


def own_cells(counts: HourCounts) -> Cells:
    """Every group is shown as it is."""
    return Cells(counts.groups, np.arange(len(counts.groups)), None, {}, 1)


def cells_of(counts: HourCounts, hours: Mapping[int, int], *, by_queue: bool, smallest: int) -> Cells:
    """`hours`: see Cells. `by_queue`: see DaySizes."""
    groups = counts.groups
    devices = counts.queues if by_queue else counts.tokens_by(np.arange(len(groups)))
    placed = [at for at, group in enumerate(groups) if group.hour in hours]
    host_of = {at: (hours[groups[at].hour], groups[at].smp_host or "") for at in placed}
    hidden = _small_hosts(devices, host_of, len(groups), smallest)
    cell_host = {at: SMALL_GROUPS if key in hidden else key[1] for at, key in host_of.items()}
    provider_of = {
        at: (host_of[at][0], cell_host[at], groups[at].provider or "") for at in placed if groups[at].provider
    }
    sizes = _sizes(devices, provider_of, len(groups))
    few = {(hour, host) for (hour, host, _), size in sizes.items() if size < smallest}
    cells: dict[Group, int] = {}
    number_of_group = np.full(len(groups), UNPLACED, np.int64)
    for at in placed:
        hour, host, provider = host_of[at][0], cell_host[at], groups[at].provider
        if provider and (hour, host) in few:
            provider = SMALL_GROUPS
        number_of_group[at] = cells.setdefault(Group(hour, host or None, provider or None), len(cells))
    hosts = {(groups[at].hour, groups[at].smp_host or ""): cell_host[at] or None for at in placed}
    return Cells(list(cells), number_of_group, hours, hosts, smallest)


def _small_hosts(
    devices: DeviceSets, host_of: Mapping[int, tuple[int, str]], groups: int, smallest: int
) -> set[tuple[int, str]]:
    """Hour and host of hosts that are counted together."""
    sizes = _sizes(devices, host_of, groups)
    hidden = {key for key, size in sizes.items() if size < smallest}
    pool = {at: (key[0], SMALL_GROUPS) for at, key in host_of.items() if key in hidden}
    large: dict[int, list[tuple[int, str]]] = {}
    for (hour, host), size in sizes.items():
        if size >= smallest:
            large.setdefault(hour, []).append((size, host))
    for (hour, _), together in _sizes(devices, pool, groups).items():
        if together < smallest and hour in large:
            hidden.add((hour, min(large[hour])[1]))
    return hidden


def _sizes(devices: DeviceSets, key_of: Mapping[int, Key], groups: int) -> dict[Key, int]:
    """Numbers of devices by key. `devices`: by group, of which some have a key."""
    keys: dict[Key, int] = {}
    number_of = np.full(groups, UNPLACED, np.int64)
    for at, key in key_of.items():
        number_of[at] = keys.setdefault(key, len(keys))
    return dict(zip(keys, devices.united(number_of).sizes(len(keys)), strict=True))


def shown_categories(sizes: Mapping[str, int], *, smallest: int) -> dict[str, str]:
    """Each category as it is shown: `(small groups)` stands for small ones and the smallest of the others.

    Without that one, the difference between all categories and those shown would tell about the small ones.
    """
    hidden = {category for category, size in sizes.items() if size < smallest}
    others = [(size, category) for category, size in sizes.items() if size >= smallest]
    if hidden and others:
        hidden.add(min(others)[1])
    return {category: SMALL_GROUPS if category in hidden else category for category in sizes}
