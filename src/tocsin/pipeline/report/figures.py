"""The figures of a report as plain values. Pages and CSV files show nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Final, Self

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.report.verdict import DeliveryLosses
from tocsin.pipeline.schemas.hourly import ACCOUNT

WEEK: Final = 7
RANKS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Ranks for which every span has a latency."""
ENGINE_RANKS: Final = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Days:
    """A range of days in UTC, both ends included."""

    first: date
    last: date

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise ValueError(f"{self.last} is before {self.first}")

    @property
    def number(self) -> int:
        return (self.last - self.first).days + 1

    def before(self) -> Days:
        """The same weekdays, whole weeks earlier, without overlap."""
        back = timedelta(days=-(-self.number // WEEK) * WEEK)
        return Days(self.first - back, self.last - back)

    def each(self) -> list[date]:
        return [self.first + timedelta(days=number) for number in range(self.number)]


@dataclass(frozen=True, slots=True)
class DeliveryAccount:
    """received = accepted + superseded + failed + shed + pending + difference."""

    received: int = 0
    accepted: int = 0
    superseded: int = 0
    failed: int = 0
    shed: int = 0
    pending: int = 0
    difference: int = 0
    ends_twice: int = 0
    ends_unreceived: int = 0
    redelivered: int = 0
    """Received notifications that came more than once. Each is counted once in the terms above."""

    @classmethod
    def of_terms(cls, terms: Mapping[str, int]) -> Self:
        """Account for a source that has no difference of its own, such as a router's metrics."""
        known = {name: terms.get(name, 0) for name in ACCOUNT}
        ended = sum(known.values()) - known["received"]
        return cls(**known, difference=known["received"] - ended)

    @property
    def due(self) -> int:
        """Notifications to deliver: a superseded one is covered by the newer one."""
        return self.received - self.superseded


@dataclass(frozen=True, slots=True)
class SpanLatency:
    name: str
    n: int
    negative: int
    us: tuple[int, ...]
    """One latency per rank in RANKS."""

    def at(self, rank: float) -> int:
        return self.us[RANKS.index(rank)]


@dataclass(frozen=True, slots=True)
class EngineCount:
    """Notifications that ended after a push by an engine."""

    engine: str
    """Empty if nobody pushed them, or if the events are from before engines were named."""
    accepted: int
    failed: int
    us: tuple[int, ...] = ()
    """Time from receipt to acceptance for each of ENGINE_RANKS, of days that still have rows. Empty if unknown."""


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    outcome: str
    reason: str
    n: int


@dataclass(frozen=True, slots=True)
class ReportPeriod:
    """Figures of some days that can be compared with those of other days."""

    days: Days
    accounting: DeliveryAccount
    stages: Mapping[Stage, int]
    spans: tuple[SpanLatency, ...] = ()
    outcomes: tuple[OutcomeCount, ...] = ()
    engines: tuple[EngineCount, ...] = ()


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour over all SMP hosts."""

    at: datetime
    accounting: DeliveryAccount


@dataclass(frozen=True, slots=True)
class HostHour:
    """An hour of the day at one SMP host, over all days of the range."""

    host: str
    hour: int
    received: int
    lost: int
    difference: int


@dataclass(frozen=True, slots=True)
class TokenDay:
    day: date
    change: str
    reason: str
    tokens: int


@dataclass(frozen=True, slots=True)
class HostHealth:
    """The health of an SMP host over the range."""

    host: str
    received: int
    unknown_queue: int
    subscribed: int
    unsubscribed: int
    errors: int
    storm_hours: int
    silent_hours: int
    """Hours with no or few notifications that are busy on other days."""
    longest_gap_seconds: int
    """Longest gap within an hour."""
    skew_us: int | None


@dataclass(frozen=True, slots=True)
class QuarantinedLines:
    reason: str
    lines: int
    segments: int


@dataclass(frozen=True, slots=True)
class HostDrift:
    """Queues of an SMP host about which the routers disagree."""

    host: str
    kind: str
    queues: int


@dataclass(frozen=True, slots=True)
class Figures:
    period: ReportPeriod
    before: ReportPeriod | None
    """The same weekdays of earlier weeks, if there are any rows of them."""
    made_at: datetime
    built_at: datetime
    """Time of the last build."""
    smallest_group: int
    losses: DeliveryLosses = field(default_factory=DeliveryLosses)
    late_events: int = 0
    """Events that arrived after the rows of their day had expired, since the lake was created."""
    hours: tuple[Hour, ...] = ()
    host_hours: tuple[HostHour, ...] = ()
    tokens: tuple[TokenDay, ...] = ()
    servers: tuple[HostHealth, ...] = ()
    quarantined: tuple[QuarantinedLines, ...] = ()
    drift: tuple[HostDrift, ...] | None = None
    """None if never measured, empty if the routers agree."""
    drift_day: date | None = None

    def is_off(self, allowed: Mapping[str, int]) -> bool:
        """Whether more notifications are unaccounted for than allowed, by kind. Nothing allows a difference."""
        return bool(self.losses.beyond(allowed) or self.period.accounting.difference)
