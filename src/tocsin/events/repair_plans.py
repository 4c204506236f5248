"""The plan that `tocsin pipeline reconcile` writes and `tocsin ntf repair` applies: lines that name queues in clear."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from tocsin.events.private_files import CountedLines

PLAN_VERSION: Final = 1


class DriftKind(StrEnum):
    """How the two routers differ about a queue."""

    MISSING_AT_SMP = "missing_at_smp"
    """The NTF router wants its notifications; the SMP router has no such notifier."""
    NOT_ASSOCIATED = "not_associated"
    """The NTF router relies on its service; the SMP router has not associated the queue with it."""
    UNNOTICED_ASSOCIATION = "unnoticed_association"
    """Associated with the service, but the NTF router believes that it is not."""
    ENDED_AT_NTF = "ended_at_ntf"
    """Associated with the service, but for the NTF router the subscription is at an end."""
    DUPLICATE = "duplicate"
    """Subscribed twice, under two addresses of one SMP router."""
    UNKNOWN_AT_NTF = "unknown_at_ntf"
    """Associated with the service, and the NTF router has no subscription."""


class RepairAction(StrEnum):
    RESUBSCRIBE = "resubscribe"
    """The NTF router subscribes again."""
    RECREATE = "recreate"
    """The device finds at its next check that it has to create notifier and subscription anew."""
    REMOVE = "remove"
    """The subscription is deleted."""
    REPORT = "report"
    """Nothing that an NTF router could do."""


class PlanBegins(msgspec.Struct, frozen=True):
    """The first line."""

    version: int = msgspec.field(name="plan")
    made_at: int
    entries: int


class RepairEntry(msgspec.Struct, frozen=True, gc=False):
    action: RepairAction
    kind: DriftKind
    router: str
    """Address of the SMP router, as the NTF router knows it."""
    notifier_id: str
    status: str = ""
    """Of the subscription when it was exported: it is repaired only if it is still so."""
    associated: bool = False

    def __repr__(self) -> str:
        """Without the id."""
        return f"RepairEntry({self.action!r}, {self.kind!r})"


_PLANS: Final = CountedLines(
    PlanBegins,
    RepairEntry,
    PLAN_VERSION,
    name="plan",
    maker="tocsin pipeline reconcile",
    if_cut=" Nothing was changed",
)


def write_plan(path: Path, made_at: int, count: int, entries: Iterable[RepairEntry]) -> None:
    """Raises ConfigError, and ValueError if there are not as many entries: then nothing is written."""
    _PLANS.write(path, PlanBegins(PLAN_VERSION, made_at, count), entries)


def read_plan(path: Path) -> list[RepairEntry]:
    """Raises ConfigError, saying which line is none or that some are missing."""
    return _PLANS.read(path)[1]
