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
    """Differences of the two routers about a queue."""

    MISSING_AT_SMP = "missing_at_smp"
    """The NTF router wants its notifications; the SMP router has no such notifier."""
    NOT_ASSOCIATED = "not_associated"
    """The NTF router relies on its service; the SMP router has not associated the queue with it."""
    UNNOTICED_ASSOCIATION = "unnoticed_association"
    """Associated with the service, but not in the NTF router's store."""
    ENDED_AT_NTF = "ended_at_ntf"
    """Associated with the service, but the NTF router's subscription has ended."""
    DUPLICATE = "duplicate"
    """Subscribed twice, under two addresses of one SMP router."""
    UNKNOWN_AT_NTF = "unknown_at_ntf"
    """Associated with the service, and the NTF router has no subscription."""


class RepairAction(StrEnum):
    RESUBSCRIBE = "resubscribe"
    """The NTF router subscribes again."""
    RECREATE = "recreate"
    """The device learns at its next check that it must create notifier and subscription again."""
    REMOVE = "remove"
    """The subscription is deleted."""
    REPORT = "report"
    """Nothing: an NTF router cannot repair this."""


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
    """Status of the subscription in the export. It is repaired only if the status is still the same."""
    associated: bool = False

    def __repr__(self) -> str:
        """Omit the id."""
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
    """Write the file. Raises ConfigError; raises ValueError, and writes nothing, if the number of entries is wrong."""
    _PLANS.write(path, PlanBegins(PLAN_VERSION, made_at, count), entries)


def read_plan(path: Path) -> list[RepairEntry]:
    """Read the file. Raises ConfigError that names the broken line, or says that lines are missing."""
    return _PLANS.read(path)[1]
