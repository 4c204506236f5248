"""Four accounts of the same notifications, made independently, which must agree:

- the NTF router's own totals, which its store keeps;
- the events that the routers wrote, recounted here;
- Spark's account of these events (`tocsin pipeline ingest` and `build`);
- what the push services accepted, opened with the phones' keys.

Events are lost, and counted by the router, while its event log cannot be written. So an account of the NTF router's
events may fall short by that number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as parquet  # type: ignore[import-untyped]  # it has no types

from chaos.world import ChaosWorld
from tests.doubles.spark_desk import SparkDesk
from tocsin.errors import BadBox
from tocsin.events.delivery_events import ENDS, DeliveryEvent, Stage, decode_event
from tocsin.events.event_log import PUBLISHED
from tocsin.events.pseudonyms import PERIOD_SECONDS, PseudonymKeys

BEST_END_FIRST: Final = (Stage.ACCEPTED, Stage.FAILED, Stage.SHED, Stage.SUPERSEDED)
"""The end that counts if a notification came again after it had ended."""
COLUMNS: Final = (
    "enqueued",
    "sent",
    "received",
    "unknown_queue",
    *map(str, BEST_END_FIRST),
    "pending",
    "redelivered",
    "ends_twice",
    "ends_unreceived",
    "difference",
)
KEEP_DAYS: Final = 10_000


def read_events(folder: Path) -> list[DeliveryEvent]:
    lines = [line for path in sorted(folder.glob(PUBLISHED)) for line in path.read_bytes().splitlines()]
    return [decode_event(line) for line in lines]


@dataclass
class _Path:
    """Of one notification."""

    stages: set[str] = field(default_factory=set)
    received_at: set[int] = field(default_factory=set)

    @property
    def ends(self) -> set[str]:
        return self.stages & ENDS


class EventAccount:
    """The routers' events, by notification."""

    def __init__(self, events: Iterable[DeliveryEvent]) -> None:
        self._paths: dict[str, _Path] = defaultdict(_Path)
        self._times: dict[str, int] = defaultdict(int)
        """How often a stage was written."""
        for event in events:
            if not event.notification:
                continue
            path = self._paths[event.notification]
            path.stages.add(event.stage)
            self._times[event.stage] += 1
            if event.stage == Stage.RECEIVED:
                path.received_at.add(event.at)

    def having(self, *stages: str) -> set[str]:
        """Return the notifications that reached one of these stages."""
        return {name for name, path in self._paths.items() if not path.stages.isdisjoint(stages)}

    def between(self, stage: str) -> tuple[int, int]:
        """Return the least and the greatest number of times that the router can have counted this stage.

        A kill may repeat an event, or end a notification in another way than its event said.
        """
        sure = [path for path in self._paths.values() if stage in path.stages and len(path.ends) <= 1]
        return len(sure), self._times[stage]

    def columns(self) -> dict[str, int]:
        """Return what Spark should count."""
        found = dict.fromkeys(COLUMNS, 0)
        for path in self._paths.values():
            received, ends, redelivered = (
                Stage.RECEIVED in path.stages,
                path.ends,
                len(path.received_at) > 1,
            )
            for stage in ("enqueued", "sent", "received", "unknown_queue"):
                found[stage] += stage in path.stages
            if ends:
                found[str(next(end for end in BEST_END_FIRST if end in ends))] += 1
            found["pending"] += received and not ends
            found["redelivered"] += redelivered
            found["ends_twice"] += len(ends) > 1 and not redelivered
            found["ends_unreceived"] += bool(ends) and not received
        ended = sum(found[str(end)] for end in ENDS)
        found["difference"] = found["received"] - found["pending"] - found["ends_twice"] - ended
        return found


def compare_totals(events: EventAccount, totals: dict[str, float], *, exactly: bool, lost: int) -> list[str]:
    """Compare the totals in the NTF router's store with its events."""
    problems = []
    failed = sum(value for name, value in totals.items() if name.startswith("failed"))
    for stage, total in (
        (Stage.RECEIVED, totals["received"]),
        (Stage.ACCEPTED, totals["accepted"]),
        (Stage.SUPERSEDED, totals["superseded"]),
        (Stage.FAILED, failed),
    ):
        least, most = events.between(stage)
        if exactly:
            least = most = len(events.having(stage))
        if not least <= total <= most + lost:
            problems.append(
                f"{stage}: {total:.0f} in the store, {least} to {most} by the event log, {lost} events lost"
            )
    without_end = len(events.having(Stage.RECEIVED) - events.having(*ENDS))
    unreceived = len(events.having(*ENDS) - events.having(Stage.RECEIVED))
    if without_end + unreceived > lost:
        problems.append(
            f"{without_end} notifications were received and have no outcome, {unreceived} have an outcome "
            f"and were not received; {lost} events were lost"
        )
    return problems


def compare_providers(world: ChaosWorld, events: EventAccount) -> tuple[list[str], dict[str, int]]:
    """Open every push that a service accepted, and compare what the pushes say with the NTF router's events."""
    told: set[tuple[bytes, bytes]] = set()
    unopened = 0
    for push in world.mailbox.accepted:
        if not push.device.startswith(b"phone-"):
            continue  # an attacker's
        phone = world.phones[int(push.device.split(b"-")[1])]
        try:
            told |= {(item.queue.notifier_id, item.nonce) for item in phone.notifications(push)}
        except BadBox:
            unopened += 1
    names = _pseudonyms(world.folder / "keys", told)
    lost = world.ntf.events_lost
    invented = len(events.having(Stage.ACCEPTED) - names)
    unknown = len(names - events.having(Stage.RECEIVED))
    problems = []
    if unopened:
        problems.append(f"{unopened} pushes cannot be opened by their phones")
    if invented:
        problems.append(f"{invented} notifications were accepted by no push service, but the router says so")
    if unknown > lost:
        problems.append(f"{unknown} pushed notifications are not in the event log, {lost} events were lost")
    return problems, {"pushed_notifications": len(told), "accepted_pushes": len(world.mailbox.accepted)}


def _pseudonyms(folder: Path, told: set[tuple[bytes, bytes]]) -> set[str]:
    """Return the pseudonyms of these notifications on the one day of this world."""
    [day] = [int(path.stem) for path in folder.glob("*.key")]
    period = PseudonymKeys(folder, KEEP_DAYS, lambda: day * PERIOD_SECONDS).of_day(day)
    assert period is not None
    return {period.notification(*each) for each in told}


async def compare_spark(
    world: ChaosWorld, events: EventAccount, desk: SparkDesk
) -> tuple[list[str], dict[str, int]]:
    """Let Spark account for the same event logs."""
    lake = world.folder / "lake"
    sources = [word for place in world.routers for word in ("--events", world.events(place.name))]
    try:
        await desk.run("ingest", *sources, "--lake", lake, "--available-now", "--ahead", 96)
        await desk.run("build", "--lake", lake, "--smallest-group", 1, code=None)
    except AssertionError as error:
        return [f"the pipeline failed: {error}"], {}
    counted = _sums(lake)
    expected = events.columns()
    problems = [
        f"{name}: Spark counts {counted[name]}, the recount {expected[name]}"
        for name in COLUMNS
        if counted[name] != expected[name]
    ]
    # A kill between the event of an end and its commit leaves the notification pending: it may end in another way then.
    other_ends = counted["ends_twice"] if world.ntf.lives > 1 else 0
    if abs(counted["difference"] + other_ends) > world.ntf.events_lost:
        problems.append(f"Spark's account does not add up: {counted}")
    return problems, {f"spark_{name}": value for name, value in counted.items()}


def _sums(lake: Path) -> dict[str, int]:
    from tocsin.pipeline.lake.lake import LakeTable
    from tocsin.pipeline.lake.tables import FUNNEL_TABLE

    rows: list[dict[str, Any]] = []
    for path in LakeTable(lake, FUNNEL_TABLE).snapshot().files:
        rows += parquet.ParquetFile(lake / FUNNEL_TABLE.name / path).read().to_pylist()
    return {name: sum(row[name] for row in rows) for name in COLUMNS}
