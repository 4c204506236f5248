"""The plan that `tocsin pipeline reconcile` writes and `tocsin ntf repair` applies: lines that name queues in clear."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from tocsin.errors import ConfigError
from tocsin.observability.private_files import write_private_lines

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

    plan: int
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


def write_plan(path: Path, made_at: int, count: int, entries: Iterable[RepairEntry]) -> None:
    """Raises ConfigError, and ValueError if there are not as many entries: then nothing is written."""

    def lines() -> Iterator[bytes]:
        yield msgspec.json.encode(PlanBegins(PLAN_VERSION, made_at, count))
        left = count
        for entry in entries:
            yield msgspec.json.encode(entry)
            left -= 1
        if left:
            raise ValueError(f"{count - left} entries instead of {count}")

    write_private_lines(path, lines())


def read_plan(path: Path) -> list[RepairEntry]:
    """Raises ConfigError, saying which line is none or that some are missing."""
    try:
        first, *lines = path.read_bytes().splitlines() or [b""]
    except OSError as error:
        raise ConfigError(f"the plan {path} cannot be read: {error.strerror}") from error
    try:
        begins = msgspec.json.decode(first, type=PlanBegins)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} is no plan of tocsin pipeline reconcile: {error}") from error
    if begins.plan != PLAN_VERSION:
        raise ConfigError(f"{path} is a plan of version {begins.plan}; {PLAN_VERSION} is known")
    entries = []
    for number, line in enumerate(lines, start=2):
        try:
            entries.append(_DECODER.decode(line))
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{path}, line {number} is no entry of a plan: {error}") from error
    if len(entries) != begins.entries:
        raise ConfigError(
            f"{path} has {len(entries)} entries instead of {begins.entries}: was it cut? Nothing was changed"
        )
    return entries


_DECODER: Final = msgspec.json.Decoder(RepairEntry)
