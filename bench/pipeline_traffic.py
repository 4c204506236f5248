"""Segments as two routers write them: a few notifications that are all delivered now."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tocsin.events.delivery_events import DeliveryEvent, Stage

DAY: Final = 86_400
STAGES: Final = (Stage.ENQUEUED, Stage.SENT, Stage.RECEIVED, Stage.ATTEMPTED, Stage.ACCEPTED)
TOKENS: Final = 40
_numbers: Final = itertools.count()


def delivered(number: int, at: float) -> list[DeliveryEvent]:
    """The events of one notification. `at`: seconds since 1970."""
    moments = enumerate(int(at * 1_000_000) + 900 * each for each in range(len(STAGES)))
    return [
        DeliveryEvent(
            id=f"n{number:021d}.{STAGES[stage]}",
            stage=STAGES[stage],
            at=moment,
            mono=moment % (DAY * 1_000_000),
            router="smp-1" if stage < 2 else "ntf-1",
            period=f"{int(at) // DAY}-5eed5eed",
            notification=f"n{number:021d}",
            queue=f"q{number % (20 * TOKENS):021d}",
            token="" if stage < 2 else f"t{number % TOKENS:021d}",
            smp_host=f"smp{number % 3}.example",
            provider="" if stage < 2 else "apns_prod",
        )
        for stage, moment in moments
    ]


def publish_segment(folder: Path, times: Sequence[float]) -> int:
    """Writes one segment with a notification for each time, and returns the number of its events."""
    folder.mkdir(parents=True, exist_ok=True)
    events = [event for at in times for event in delivered(next(_numbers), at)]
    name = f"events-{int(times[0] * 1_000_000):020d}-1-{next(_numbers)}.jsonl"
    draft = folder / f".{name}"
    draft.write_bytes(msgspec.json.Encoder().encode_lines(events))
    draft.rename(folder / name)
    return len(events)
