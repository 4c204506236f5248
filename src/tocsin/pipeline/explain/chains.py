"""A notification's path reconstructed from its events, and changes of its subscription and token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypedDict

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.notifications import STAGES

Hash = tuple[int, int]
"""A notification's pseudonym as stored in tables."""
ORDER: Final = {stage: number for number, stage in enumerate(STAGES)}


class EventRow(TypedDict):
    """The columns of `events` that an explanation needs. Fields that do not apply are empty or None."""

    period: str
    stage: str
    at: int
    router: str
    notification_high: int | None
    notification_low: int | None
    queue: int | None
    smp_host: str
    provider: str
    priority: str
    reason: str
    attempt: int
    engine: str
    from_status: str
    to_status: str
    cause: str


@dataclass(frozen=True, slots=True)
class StageStep:
    stage: Stage
    at: int
    """Microseconds since 1970."""
    router: str = ""
    attempt: int = 0
    reason: str = ""
    engine: str = ""
    """The engine that pushed, if this is an attempt or an end after one."""


@dataclass(frozen=True, slots=True)
class Chain:
    """One notification."""

    period: str
    notification: Hash
    queue: int | None = None
    smp_host: str = ""
    provider: str = ""
    priority: str = ""
    """`mention` or `highest`; empty for an ordinary message."""
    steps: tuple[StageStep, ...] = ()
    """In the order of the path, which is that of time unless clocks disagree."""

    def first(self, *stages: Stage) -> StageStep | None:
        """The first step of any of these stages."""
        return next((step for step in self.steps if step.stage in stages), None)

    @property
    def began_at(self) -> int:
        return min((step.at for step in self.steps), default=0)

    @property
    def attempts(self) -> int:
        return sum(step.stage is Stage.ATTEMPTED for step in self.steps)


@dataclass(frozen=True, slots=True)
class StatusChange:
    """A change of a subscription or a token."""

    of: Stage
    at: int
    router: str
    before: str
    after: str
    cause: str
    queue: int | None = None


def chains_of(rows: Iterable[EventRow]) -> tuple[Chain, ...]:
    """Chains, oldest first. Repeated events become one step, at the earliest time."""
    found: dict[tuple[str, Hash], list[EventRow]] = {}
    for row in rows:
        high, low = row["notification_high"], row["notification_low"]
        if high is not None and low is not None and row["stage"] in ORDER:
            found.setdefault((row["period"], (high, low)), []).append(row)
    chains = (_chain(period, notification, own) for (period, notification), own in found.items())
    return tuple(sorted(chains, key=lambda chain: (chain.began_at, chain.notification)))


def _chain(period: str, notification: Hash, rows: list[EventRow]) -> Chain:
    steps: dict[tuple[str, int], StageStep] = {}
    for row in sorted(rows, key=lambda each: each["at"]):
        attempt = row["attempt"] if row["stage"] == Stage.ATTEMPTED else 0
        step = StageStep(
            Stage(row["stage"]), row["at"], row["router"], row["attempt"], row["reason"], row["engine"] or ""
        )
        steps.setdefault((row["stage"], attempt), step)
    return Chain(
        period,
        notification,
        next((row["queue"] for row in rows if row["queue"] is not None), None),
        max(row["smp_host"] for row in rows),
        max(row["provider"] for row in rows),
        max(row["priority"] or "" for row in rows),
        tuple(sorted(steps.values(), key=lambda step: (ORDER[step.stage], step.at))),
    )


def changes_of(rows: Iterable[EventRow]) -> tuple[StatusChange, ...]:
    """Changes of subscriptions and tokens, oldest first."""
    kinds = (Stage.SUBSCRIPTION_CHANGED, Stage.TOKEN_CHANGED)
    found = {
        StatusChange(
            Stage(row["stage"]),
            row["at"],
            row["router"],
            row["from_status"],
            row["to_status"],
            row["cause"],
            row["queue"],
        )
        for row in rows
        if row["stage"] in kinds
    }
    return tuple(sorted(found, key=lambda change: (change.at, change.of, change.after)))
