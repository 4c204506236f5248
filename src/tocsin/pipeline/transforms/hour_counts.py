"""Notifications → what is counted about them: the single pass over their rows that all hourly tables are made from.

Theory of operation. Flags say which stages a notification has passed. The flags of a notification are the bits of one
number. Few different numbers occur, so rows are counted by them, and everything else is a sum over few rows. Counts of
several hours and files join, in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray

from tocsin.events.delivery_events import ENDS, Stage
from tocsin.pipeline.schemas.events import HASHES
from tocsin.pipeline.schemas.notifications import STAGES, moment
from tocsin.pipeline.transforms.device_sets import KEPT, DeviceSets, joined_sets, sets_of
from tocsin.pipeline.transforms.event_merge import LAST_RECEIVED
from tocsin.pipeline.transforms.latency_spans import SPANS
from tocsin.pipeline.transforms.notifications import BEST_END_FIRST
from tocsin.pipeline.transforms.row_columns import (
    GREATEST,
    LEAST,
    Codes,
    Numbers,
    numbered,
    numbers_of,
    texts_of,
)
from tocsin.pipeline.transforms.weighted_samples import WeightedSamples, joined_samples, samples_of

REDELIVERED: Final = "redelivered"
COUNTS: Final = (*STAGES, "pending", REDELIVERED, "ends_twice", "ends_unreceived")
BITS: Final[Mapping[str, int]] = {flag: 1 << bit for bit, flag in enumerate((*STAGES, REDELIVERED))}
MINUTE: Final = 60_000_000
NEEDED: Final = ("smp_host", "provider", "reason", "engine", *HASHES, LAST_RECEIVED, *map(moment, STAGES))
"""The columns of notifications that count."""


class Group(NamedTuple):
    hour: int
    smp_host: str | None
    provider: str | None


class End(NamedTuple):
    """The end that counts. None: it has not ended."""

    group: int
    outcome: Stage | None
    reason: str | None
    engine: str | None


@dataclass(frozen=True, slots=True)
class HourCounts:
    """Counts of hours of one day. A span of a group has the number `group * len(SPANS) + span`."""

    groups: Sequence[Group]
    counts: Numbers
    """By group, and by name in COUNTS."""
    minutes: Numbers
    """By group: the minutes in which notifications were received, as bits."""
    skew_us: Numbers
    """By group: the shortest time from sent to received, GREATEST without one."""
    negative: Numbers
    """By span of a group: durations below 0."""
    extremes: tuple[Numbers, Numbers]
    """By span of a group: the least and the greatest duration, where there is one."""
    samples: WeightedSamples
    """By span of a group: durations. Negative ones count as 0."""
    span_tokens: DeviceSets
    """By span of a group: as many tokens as are enough."""
    queues: DeviceSets
    """By group: queues of notifications without a token."""
    ends: Sequence[End]
    end_counts: Numbers
    end_tokens: DeviceSets

    def tokens_by(self, number_of_group: Numbers) -> DeviceSets:
        """Tokens by new numbers of the groups."""
        groups = np.array([end.group for end in self.ends], np.int64)
        return self.end_tokens.united(number_of_group[groups])


def count_hour(rows: pa.Table, hour: int, *, enough: int) -> HourCounts:
    """`rows`: notifications of one hour, with those columns of NEEDED that they have."""
    texts = {name: _texts(rows, name) for name in ("smp_host", "provider", "reason", "engine")}
    (host_codes, hosts), (provider_codes, providers) = texts["smp_host"], texts["provider"]
    firsts, group = numbered(host_codes, provider_codes)
    groups = [
        Group(hour, _text(hosts, host_codes[first]), _text(providers, provider_codes[first]))
        for first in firsts.tolist()
    ]
    times = {stage: numbers_of(rows[moment(stage)]) for stage in STAGES if moment(stage) in rows.column_names}
    token, queue = (_numbers(rows, name) for name in ("token", "queue"))
    flags = _flags(rows, times)
    (reason_codes, reasons), (engine_codes, engines) = texts["reason"], texts["engine"]
    firsts, kind = numbered(group, numbered(flags)[1], reason_codes, engine_codes)
    kind_groups, kind_flags, kind_sizes = (
        group[firsts],
        flags[firsts],
        np.bincount(kind, minlength=len(firsts)),
    )
    outcomes = _outcomes(kind_flags)
    numbers: dict[End, int] = {}
    end_of_kind = np.array(
        [
            numbers.setdefault(
                End(
                    int(kind_groups[at]),
                    outcomes[at],
                    _text(reasons, reason_codes[first]),
                    _text(engines, engine_codes[first]),
                ),
                len(numbers),
            )
            for at, first in enumerate(firsts.tolist())
        ],
        np.int64,
    )
    has_token = token != LEAST
    tokens = sets_of(kind[has_token], token[has_token], most=max(KEPT, enough))
    received, sent = (times.get(stage, _nothing(len(rows))) for stage in (Stage.RECEIVED, Stage.SENT))
    minutes, skew_us = np.zeros(len(groups), np.int64), np.full(len(groups), GREATEST, np.int64)
    here = received != LEAST
    np.bitwise_or.at(minutes, group[here], np.int64(1) << (received[here] // MINUTE % 60))
    here &= sent != LEAST
    np.minimum.at(skew_us, group[here], received[here] - sent[here])
    negative, extremes, samples = _spans(times, group, len(groups))
    return HourCounts(
        groups,
        _counts(kind_flags, outcomes, kind_sizes, kind_groups, len(groups)),
        minutes,
        skew_us,
        negative,
        extremes,
        samples,
        _span_tokens(tokens.limited(enough), kind_flags, kind_groups, enough),
        sets_of(group[~has_token & (queue != LEAST)], queue[~has_token & (queue != LEAST)]),
        list(numbers),
        _sums(end_of_kind, kind_sizes, len(numbers)),
        tokens.united(end_of_kind),
    )


def joined_counts(parts: Iterable[HourCounts], *, enough: int) -> HourCounts:
    """Counts of the same day."""
    known = list(parts)
    numbers: dict[Group, int] = {}
    ends: dict[End, int] = {}
    group_numbers, end_numbers = [], []
    for part in known:
        own = np.array([numbers.setdefault(each, len(numbers)) for each in part.groups], np.int64)
        group_numbers.append(own)
        end_numbers.append(
            np.array(
                [ends.setdefault(end._replace(group=int(own[end.group])), len(ends)) for end in part.ends],
                np.int64,
            )
        )
    span_numbers = [(own[:, None] * len(SPANS) + np.arange(len(SPANS))).ravel() for own in group_numbers]
    counts = np.zeros((len(numbers), len(COUNTS)), np.int64)
    minutes, skew_us = np.zeros(len(numbers), np.int64), np.full(len(numbers), GREATEST, np.int64)
    negative = np.zeros(len(numbers) * len(SPANS), np.int64)
    least, greatest = np.full(len(negative), GREATEST, np.int64), np.full(len(negative), LEAST, np.int64)
    end_counts = np.zeros(len(ends), np.int64)
    for part, own, spans, end in zip(known, group_numbers, span_numbers, end_numbers, strict=True):
        counts[own] += part.counts
        minutes[own] |= part.minutes
        skew_us[own] = np.minimum(skew_us[own], part.skew_us)
        negative[spans] += part.negative
        least[spans] = np.minimum(least[spans], part.extremes[0])
        greatest[spans] = np.maximum(greatest[spans], part.extremes[1])
        end_counts[end] += part.end_counts
    return HourCounts(
        list(numbers),
        counts,
        minutes,
        skew_us,
        negative,
        (least, greatest),
        joined_samples((part.samples, own) for part, own in zip(known, span_numbers, strict=True)),
        joined_sets(
            ((part.span_tokens, own) for part, own in zip(known, span_numbers, strict=True)), most=enough
        ),
        joined_sets((part.queues, own) for part, own in zip(known, group_numbers, strict=True)),
        list(ends),
        end_counts,
        joined_sets((part.end_tokens, own) for part, own in zip(known, end_numbers, strict=True)),
    )


def _flags(rows: pa.Table, times: Mapping[Stage, Numbers]) -> Numbers:
    flags = np.zeros(len(rows), np.int64)
    for stage, at in times.items():
        flags |= np.where(at != LEAST, BITS[stage], 0)
    if LAST_RECEIVED in rows.column_names and Stage.RECEIVED in times:
        again = numbers_of(rows[LAST_RECEIVED]) > np.where(
            times[Stage.RECEIVED] == LEAST, GREATEST, times[Stage.RECEIVED]
        )
        flags |= np.where(again, BITS[REDELIVERED], 0)
    return flags


def _outcomes(flags: Numbers) -> list[Stage | None]:
    return [next((end for end in BEST_END_FIRST if each & BITS[end]), None) for each in flags.tolist()]


def _counts(
    flags: Numbers, outcomes: Sequence[Stage | None], sizes: Numbers, groups: Numbers, count: int
) -> Numbers:
    ends = sum(((flags & BITS[end]) != 0).astype(np.int64) for end in ENDS)
    received, again = (flags & BITS[Stage.RECEIVED]) != 0, (flags & BITS[REDELIVERED]) != 0
    holds: dict[str, NDArray[np.bool_]] = {
        stage: np.array([each == stage for each in outcomes], bool)
        if stage in ENDS
        else (flags & BITS[stage]) != 0
        for stage in STAGES
    }
    holds |= {
        "pending": received & (ends == 0),
        REDELIVERED: again,
        "ends_twice": (ends > 1) & ~again,
        "ends_unreceived": (ends > 0) & ~received,
    }
    return np.stack([_sums(groups, np.where(holds[name], sizes, 0), count) for name in COUNTS], axis=1)


def _sums(numbers: Numbers, values: Numbers, count: int) -> Numbers:
    found = np.zeros(count, np.int64)
    np.add.at(found, numbers, values)
    return found


def _spans(
    times: Mapping[Stage, Numbers], group: Numbers, groups: int
) -> tuple[Numbers, tuple[Numbers, Numbers], WeightedSamples]:
    size = groups * len(SPANS)
    negative = np.zeros(size, np.int64)
    least, greatest = np.full(size, GREATEST, np.int64), np.full(size, LEAST, np.int64)
    numbers, durations = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for span, (start, end) in enumerate(SPANS.values()):
        if start in times and end in times:
            here = (times[start] != LEAST) & (times[end] != LEAST)
            number = group[here] * len(SPANS) + span
            time = times[end][here] - times[start][here]
            np.add.at(negative, number, time < 0)
            time = np.maximum(time, 0)
            np.minimum.at(least, number, time)
            np.maximum.at(greatest, number, time)
            numbers.append(number)
            durations.append(time)
    return negative, (least, greatest), samples_of(np.concatenate(numbers), np.concatenate(durations))


def _span_tokens(tokens: DeviceSets, flags: Numbers, groups: Numbers, enough: int) -> DeviceSets:
    """`tokens`: by flags. The union of the least hashes of each has the least hashes of all."""
    parts = []
    for span, (start, end) in enumerate(SPANS.values()):
        both = BITS[start] | BITS[end]
        parts.append((tokens, np.where((flags & both) == both, groups * len(SPANS) + span, -1)))
    return joined_sets(parts, most=enough)


def _texts(rows: pa.Table, name: str) -> tuple[Codes, list[str]]:
    if name in rows.column_names:
        return texts_of(rows[name])
    return np.full(len(rows), -1, np.int32), []


def _text(texts: Sequence[str], code: int) -> str | None:
    return None if code < 0 else texts[code]


def _numbers(rows: pa.Table, name: str) -> Numbers:
    return numbers_of(rows[name]) if name in rows.column_names else _nothing(len(rows))


def _nothing(count: int) -> Numbers:
    return np.full(count, LEAST, np.int64)
