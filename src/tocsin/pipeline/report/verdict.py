"""The verdict on a report's days: whether every notification is accounted for, in words, as metrics and as a status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from tocsin.errors import ConfigError
from tocsin.operate.metrics import MetricKind, by_label, exposition, gauge
from tocsin.pipeline.report.wording import count

MEANINGS: Final[Mapping[str, tuple[str, str]]] = {
    "overdue": (
        "received an hour ago or earlier, and without an outcome",
        "is the NTF router running, and does it reach the provider? `tocsin pipeline replay` has them pushed",
    ),
    "never_received": (
        "sent by an SMP router, and recorded by no NTF router",
        "does the NTF router write its event log, and is it read? Otherwise the connection loses notifications",
    ),
    "unknown_queue": (
        "received for a queue that the NTF router does not know",
        "run `tocsin pipeline reconcile`, then `tocsin ntf repair`",
    ),
    "ends_unreceived": (
        "with an outcome, and never received",
        "events are lost: look for a full disk under the NTF router's event log",
    ),
    "ends_twice": (
        "received once, with two outcomes",
        "this is a bug: keep the event log, and report it",
    ),
}
"""The meaning of each kind, and the next step."""
ALL_IS_WELL: Final = "Nothing is unaccounted for."


@dataclass(frozen=True, slots=True)
class DeliveryLosses:
    """Notifications that are not accounted for, over all SMP hosts and all days of a report."""

    overdue: int = 0
    never_received: int = 0
    unknown_queue: int = 0
    ends_unreceived: int = 0
    ends_twice: int = 0

    @property
    def total(self) -> int:
        return sum(self.found().values())

    def found(self) -> dict[str, int]:
        """By kind, without kinds that did not occur."""
        every = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: number for name, number in every.items() if number}

    def beyond(self, allowed: Mapping[str, int]) -> dict[str, int]:
        """Kinds of which there are more than allowed."""
        return {name: number for name, number in self.found().items() if number > allowed.get(name, 0)}


def headline(losses: DeliveryLosses) -> str:
    """One sentence. It says that nothing is unaccounted for only if that is so."""
    found = losses.found()
    if not found:
        return ALL_IS_WELL
    parts = "; ".join(f"{count(number)} {MEANINGS[name][0]}" for name, number in found.items())
    return f"{count(losses.total)} notifications are not accounted for: {parts}."


def allowances(texts: list[str]) -> dict[str, int]:
    """Reads `NAME=NUMBER`. Raises ConfigError."""
    found = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in MEANINGS or not number.isdigit():
            raise ConfigError(f"--allow {text}: write NAME=NUMBER, with a name of {', '.join(MEANINGS)}")
        found[name] = int(number)
    return found


def metrics_text(losses: DeliveryLosses, *, checked_at: float, built_at: float, failed: bool) -> str:
    """For the textfile collector of Prometheus' node exporter."""
    numbers = {name: float(getattr(losses, name)) for name in MEANINGS}
    return exposition(
        [
            by_label(
                MetricKind.GAUGE,
                "tocsin_pipeline_unaccounted",
                "Notifications that the last check could not account for, by kind.",
                "kind",
                numbers,
            ),
            gauge("tocsin_pipeline_check_failed", "1 if the last check found more than is allowed.", failed),
            gauge("tocsin_pipeline_checked_at", "Time of the last check, seconds since 1970.", checked_at),
            gauge("tocsin_pipeline_built_at", "Time of the last build, seconds since 1970.", built_at),
        ]
    )
