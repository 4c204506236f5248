"""Lines of an event log, as routers write them, and a recount of them in plain Python."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tocsin.events.delivery_events import ENDS, DeliveryEvent, Stage

PERIOD = "20772-0123abcd"
NOON = 1_794_744_000_000_000
"""Microseconds: 2026-11-15 12:00 UTC."""
SECOND = 1_000_000
BEST_END_FIRST = (Stage.ACCEPTED, Stage.FAILED, Stage.SHED, Stage.SUPERSEDED)
NTF_STAGES = frozenset(
    {
        Stage.RECEIVED,
        Stage.UNKNOWN_QUEUE,
        Stage.SUPERSEDED,
        Stage.BATCHED,
        Stage.ATTEMPTED,
        Stage.ACCEPTED,
        Stage.FAILED,
        Stage.SHED,
    }
)


def name(kind: str, number: int) -> str:
    """A pseudonym."""
    return f"{kind}{number:021d}"


def event(
    stage: Stage,
    number: int = 1,
    *,
    at: int = NOON,
    queue: int = 1,
    token: int = 1,
    host: str = "smp.example",
    period: str = PERIOD,
    reason: str = "",
    attempt: int = 0,
    provider: str = "apns_prod",
    engine: str = "",
) -> DeliveryEvent:
    """An event of a notification."""
    ntf = stage in NTF_STAGES
    notification = name("n", number)
    suffix = f".{attempt}" if stage is Stage.ATTEMPTED else ""
    return DeliveryEvent(
        id=f"{notification}.{stage}{suffix}",
        stage=stage,
        at=at,
        mono=at % (3600 * SECOND),
        router="ntf-1" if ntf else "smp-1",
        period=period,
        notification=notification,
        queue=name("q", queue),
        token=name("t", token) if ntf and stage is not Stage.UNKNOWN_QUEUE else "",
        smp_host=host,
        provider=provider if ntf and stage is not Stage.UNKNOWN_QUEUE else "",
        reason=reason,
        attempt=attempt,
        engine=engine,
    )


def token_change(
    number: int, to_status: str, *, token: int = 1, at: int = NOON, provider: str = "apns_prod"
) -> DeliveryEvent:
    return DeliveryEvent(
        id=f"ntf-1-{at}-{number}",
        stage=Stage.TOKEN_CHANGED,
        at=at,
        mono=1,
        router="ntf-1",
        period=PERIOD,
        token=name("t", token),
        provider=provider,
        to_status=to_status,
    )


def subscription_change(
    number: int, to_status: str, *, queue: int = 1, at: int = NOON, host: str = "smp.example"
) -> DeliveryEvent:
    return DeliveryEvent(
        id=f"ntf-1-{at}-s{number}",
        stage=Stage.SUBSCRIPTION_CHANGED,
        at=at,
        mono=1,
        router="ntf-1",
        period=PERIOD,
        queue=name("q", queue),
        smp_host=host,
        to_status=to_status,
    )


def encode_events(events: list[DeliveryEvent]) -> bytes:
    """Encode events as the schema says: one line each."""
    return msgspec.json.Encoder().encode_lines(events)


def write_segment(folder: Path, number: int, events: Sequence[DeliveryEvent]) -> Path:
    """Writes a published segment."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events-{number:020d}-1-1.jsonl"
    path.write_bytes(encode_events(list(events)))
    return path


def recent(events: Iterable[DeliveryEvent]) -> list[DeliveryEvent]:
    """The same events, yesterday: jobs that run as processes expire old ones by the real clock."""
    days = int(time.time() // 86_400) - NOON // (86_400 * SECOND) - 1

    def moved(each: DeliveryEvent) -> DeliveryEvent:
        day, key = each.period.split("-")
        at = each.at + days * 86_400 * SECOND
        return msgspec.structs.replace(each, at=at, period=f"{int(day) + days}-{key}")

    return [moved(each) for each in events]


def recount(events: Iterable[DeliveryEvent]) -> dict[str, int]:
    """The accounting without Spark: repeated events count once, and of two ends the better one counts."""
    stages: dict[tuple[str, str], set[str]] = defaultdict(set)
    receipts: dict[tuple[str, str], set[int]] = defaultdict(set)
    for each in events:
        if each.notification:
            stages[each.period, each.notification].add(each.stage)
            if each.stage == Stage.RECEIVED:
                receipts[each.period, each.notification].add(each.at)
    twice = 0
    reached = []
    for key, found in stages.items():
        ends = [stage for stage in BEST_END_FIRST if stage in found]
        twice += len(ends) > 1 and len(receipts[key]) < 2
        reached.append((found - ENDS) | set(ends[:1]))
    account = {
        str(stage): sum(stage in found for found in reached) for stage in sorted({Stage.RECEIVED, *ENDS})
    }
    account["pending"] = sum(Stage.RECEIVED in found and not found & ENDS for found in reached)
    ended = sum(account[stage] for stage in ENDS)
    account["difference"] = account[Stage.RECEIVED] - account["pending"] - ended - twice
    return account
