"""Changes since the weeks before, as sentences: only those that chance does not explain and that matter."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.report.figures import DeliveryAccount, ReportPeriod
from tocsin.pipeline.report.wording import count, duration, share
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS

VOLUME: Final = 0.10
SHARE_POINTS: Final = 0.001
"""Smaller differences between shares are omitted, however certain."""
CERTAIN: Final = 4.0
"""Standard errors between two shares. Chance exceeds this once in 16,000 comparisons."""
SLOWER: Final = 0.20
LEAST_US: Final = 1_000
FEW: Final = 100
"""Quantiles of fewer latencies are not compared."""
GROWN: Final = 1.5


@dataclass(frozen=True, slots=True)
class ReportedChange:
    text: str
    better: bool | None
    """None if it is neither good nor bad."""


def changes(now: ReportPeriod, before: ReportPeriod) -> tuple[ReportedChange, ...]:
    """Changes for the worse first."""
    found = [
        *_volume(now.accounting, before.accounting),
        *_shares(now.accounting, before.accounting),
        *_never_received(now, before),
        *_latencies(now, before),
        *_reasons(now, before),
    ]
    return tuple(sorted(found, key=lambda each: (each.better is not False, each.better is not None)))


def _volume(now: DeliveryAccount, before: DeliveryAccount) -> Iterator[ReportedChange]:
    if not before.received:
        return
    grown = now.received / before.received - 1
    if abs(grown) >= VOLUME:
        word = "more" if grown > 0 else "fewer"
        yield ReportedChange(
            f"{abs(grown):.0%} {word} notifications were received: {count(now.received)}, was "
            f"{count(before.received)}.",
            None,
        )


_SHARES: Final = (
    ("accepted", "The share accepted by providers, of those not superseded,", True),
    ("failed", "The share that failed", False),
    ("shed", "The share shed under load", False),
    ("pending", "The share without an outcome", False),
)


def _shares(now: DeliveryAccount, before: DeliveryAccount) -> Iterator[ReportedChange]:
    for name, words, more_is_better in _SHARES:
        new, old = getattr(now, name), getattr(before, name)
        if differs(new, now.due, old, before.due):
            rose = new / now.due > old / before.due
            yield ReportedChange(
                _moved(words, rose, share(old, before.due), share(new, now.due)), rose is more_is_better
            )
    if differs(now.superseded, now.received, before.superseded, before.received):
        rose = now.superseded / now.received > before.superseded / before.received
        old_text, new_text = share(before.superseded, before.received), share(now.superseded, now.received)
        yield ReportedChange(
            _moved("The share superseded by a newer notification", rose, old_text, new_text), None
        )
    if now.difference and not before.difference:
        yield ReportedChange(f"The accounting no longer adds up: difference {count(now.difference)}.", False)
    elif before.difference and not now.difference:
        yield ReportedChange("The accounting adds up again.", True)


def _never_received(now: ReportPeriod, before: ReportPeriod) -> Iterator[ReportedChange]:
    """Losses between routers, where both write events."""
    new_sent, old_sent = now.stages[Stage.SENT], before.stages[Stage.SENT]
    new_lost, old_lost = (
        max(period.stages[Stage.SENT] - period.stages[Stage.RECEIVED] - period.stages[Stage.UNKNOWN_QUEUE], 0)
        for period in (now, before)
    )
    if differs(new_lost, new_sent, old_lost, old_sent):
        rose = new_lost / new_sent > old_lost / old_sent
        words = "The share sent by SMP routers but never received"
        yield ReportedChange(
            _moved(words, rose, share(old_lost, old_sent), share(new_lost, new_sent)), not rose
        )


def _latencies(now: ReportPeriod, before: ReportPeriod) -> Iterator[ReportedChange]:
    """One sentence for all spans that became slower, one for those that became faster."""
    earlier = {span.name: span for span in before.spans}
    slower: list[str] = []
    faster: list[str] = []
    for span in now.spans:
        old = earlier.get(span.name)
        if old is None or min(span.n, old.n) < FEW:
            continue
        for rank, name in ((0.5, "median"), (0.99, "p99")):
            new_us, old_us = span.at(rank), old.at(rank)
            if abs(new_us - old_us) >= max(LEAST_US, SLOWER * old_us):
                text = f"“{span.name}”, {name} {duration(new_us)}, was {duration(old_us)}"
                (slower if new_us > old_us else faster).append(text)
    if slower:
        yield ReportedChange(f"Slower: {'; '.join(slower)}.", False)
    if faster:
        yield ReportedChange(f"Faster: {'; '.join(faster)}.", True)


def _reasons(now: ReportPeriod, before: ReportPeriod) -> Iterator[ReportedChange]:
    """One sentence for reasons that are new or more frequent, one for rarer ones."""
    new, old = _failures(now), _failures(before)
    more: list[str] = []
    fewer: list[str] = []
    for reason in sorted(new.keys() | old.keys(), key=lambda each: (-new.get(each, 0), each)):
        n, earlier = new.get(reason, 0), old.get(reason, 0)
        if not differs(n, now.accounting.due, earlier, before.accounting.due):
            continue
        ratio = (n / now.accounting.due) / (earlier / before.accounting.due) if earlier else math.inf
        if ratio >= GROWN:
            times = "new" if ratio == math.inf else f"{ratio:.1f} times as often"
            more.append(f"{reason} ({count(n)}, {times})")
        elif ratio <= 1 / GROWN:
            fewer.append(f"{reason} ({count(n)}, was {count(earlier)})")
    if more:
        yield ReportedChange(f"More failures with reason {', '.join(more)}.", False)
    if fewer:
        yield ReportedChange(f"Fewer failures with reason {', '.join(fewer)}.", True)


def _failures(period: ReportPeriod) -> dict[str, int]:
    failed = (each for each in period.outcomes if each.outcome == Stage.FAILED)
    return {each.reason: each.n for each in failed if each.reason not in ("", SMALL_GROUPS)}


def differs(new: int, new_of: int, old: int, old_of: int) -> bool:
    """Whether two shares differ by more than chance, and enough to matter."""
    if not new_of or not old_of:
        return False
    together = (new + old) / (new_of + old_of)
    error = math.sqrt(together * (1 - together) * (1 / new_of + 1 / old_of)) if 0 <= together <= 1 else 0.0
    apart = abs(new / new_of - old / old_of)
    return apart >= SHARE_POINTS and apart > CERTAIN * error


def _moved(words: str, rose: bool, old: str, new: str) -> str:
    return f"{words} {'rose' if rose else 'fell'} from {old} to {new}."
