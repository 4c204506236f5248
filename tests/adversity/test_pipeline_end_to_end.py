"""From real routers under faults to answers: real processes, real PostgreSQL, real Spark.

Routers are killed, the provider fails, segments come twice and out of order, and the SMP router's clock is wrong. Then
Spark's accounting equals the NTF router's own, `explain` names the stage where a notification stopped, and nothing that
the pipeline wrote contains an identifier.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet  # type: ignore[import-untyped]  # it has no types
import pytest

from tests.doubles.delivery_lines import encode_events
from tests.doubles.spark_desk import SparkDesk
from tests.doubles.whole_delivery import Everything, everything
from tocsin.events.delivery_events import Stage, decode_event
from tocsin.events.pseudonyms import PERIOD_SECONDS
from tocsin.pipeline.lake.lake import LakeTable
from tocsin.pipeline.lake.tables import TABLES
from tocsin.push.fake.behaviours import Respond

pytestmark = pytest.mark.timeout(300)
SKEW = 3_000_000
SECONDS_OF_TRAFFIC = 0.4
TRAFFIC_AT_MOST = 60.0
"""Seconds, with all starts and comparisons."""
RECEIPTS_AGAIN = 4
"""Of a notification, at most: routers are killed and connections lost that often."""


def settings_of(folder: Path, router: str) -> dict[str, Any]:
    return {
        "event_log": folder / f"{router}-events",
        "event_log_keys": folder / "keys",
        "event_log_segment_seconds": 0.2,
    }


async def under_faults(parts: Everything) -> dict[str, int]:
    """Traffic, kills and refusals; the NTF router's accounting at the end."""
    assert parts.apns is not None
    chance = random.Random(7)
    for fault in ("ntf", "smp", "apns", "429", "503", "410"):
        traffic = asyncio.create_task(parts.traffic(chance))
        await asyncio.sleep(SECONDS_OF_TRAFFIC)
        if fault in parts.kills:
            await parts.kill(fault)
        elif fault == "410":
            device = parts.chats[0].device.device_token
            parts.apns.behave(Respond(410, "Unregistered"), device_token=device, times=None)
            parts.unreachable.add(device)
        else:
            parts.apns.behave(Respond(int(fault), "TooManyRequests"), times=5)
        await asyncio.sleep(SECONDS_OF_TRAFFIC)
        traffic.cancel()
        await asyncio.gather(traffic, return_exceptions=True)
        await parts.compare()
    async with asyncio.timeout(30):
        while not ended(account := await parts.accounting()):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)
    return {name: int(value) for name, value in account.items()}


def ended(account: dict[str, float]) -> bool:
    """Nothing waits, and nothing more will for the token that the provider refuses."""
    return not account["pending"] and any(account[name] for name in account if name.startswith("failed"))


def disturb(smp: Path, ntf: Path) -> None:
    """Every segment of the SMP router from a clock that is late, some segments twice, names in another order."""
    for path in smp.glob("events-*.jsonl"):
        events = [decode_event(line) for line in path.read_bytes().splitlines()]
        late = [type(each)(**{**asdict(each), "at": each.at - SKEW}) for each in events]
        path.write_bytes(encode_events(late))
    segments = sorted(ntf.glob("events-*.jsonl"))
    for number, path in enumerate(segments):
        if number % 3 == 0:
            shutil.copy(path, path.with_name(f"events-{99 - number}-again.jsonl"))
        path.rename(path.with_name(f"events-{random.Random(path.name).random()}-{number}.jsonl"))


def asdict(event: Any) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


def texts(folder: Path) -> Iterator[tuple[Path, str]]:
    """Everything that can be read under a folder; tables without their compression."""
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            yield path, str(parquet.ParquetFile(path).read().to_pylist())
        elif path.is_file():
            yield path, path.read_bytes().decode("latin-1")


def spellings(secret: bytes) -> set[str]:
    encoded = {base64.b64encode(secret), base64.urlsafe_b64encode(secret)}
    return {secret.decode("latin-1"), secret.hex(), *(each.rstrip(b"=").decode() for each in encoded)}


def identifiers(parts: Everything) -> set[str]:
    found: set[str] = set()
    for chat in parts.chats:
        for secret in (
            chat.notifier.notifier_id,
            chat.queue.recipient_id,
            chat.queue.sender_id,
            chat.device.device_token,
            chat.device.token_id,
        ):
            found |= spellings(secret)
    return found


def sums(lake: Path) -> dict[str, int]:
    [table] = [table for table in TABLES if table.name == "funnel_hourly"]
    rows: list[dict[str, Any]] = []
    for path in LakeTable(lake, table).snapshot().files:
        rows += parquet.ParquetFile(lake / table.name / path).read().to_pylist()
    names = ("received", "accepted", "superseded", "failed", "shed", "pending", "redelivered", "difference")
    return {name: sum(row[name] for row in rows) for name in names}


async def one_day_long_enough() -> None:
    """What a killed router had written down but not stored comes again; after midnight it has another pseudonym."""
    left = PERIOD_SECONDS - time.time() % PERIOD_SECONDS
    if left < TRAFFIC_AT_MOST:
        await asyncio.sleep(left)


async def test_what_routers_did_under_faults_is_what_the_pipeline_says(
    tmp_path: Path, url: str, desk: SparkDesk
) -> None:
    await one_day_long_enough()
    ntf = {"store": "url", "db_connection": url, **settings_of(tmp_path, "ntf")}
    async with everything(tmp_path, ntf, settings_of(tmp_path, "smp")) as parts:
        account = await under_faults(parts)
        assert parts.ntf is not None
        assert parts.smp is not None
        await parts.ntf.stop()
        await parts.smp.stop()
        clear = identifiers(parts)
    assert account["difference"] == 0
    smp_events, ntf_events = tmp_path / "smp-events", tmp_path / "ntf-events"
    written = [line for path in ntf_events.glob("events-*") for line in path.read_bytes().splitlines()]
    disturb(smp_events, ntf_events)

    lake, report = tmp_path / "lake", tmp_path / "report"
    sources = ("--events", smp_events, "--events", ntf_events)
    await desk.run("ingest", *sources, "--lake", lake, "--available-now", "--build", "--smallest-group", 2)
    counted = sums(lake)
    assert counted["difference"] == counted["pending"] == 0
    # The router counts receipts, the pipeline notifications: what an SMP router sent again is one.
    again = account["received"] - counted["received"]
    assert 0 <= again <= RECEIPTS_AGAIN * counted["redelivered"]
    failures = sum(value for name, value in account.items() if name.startswith("failed"))
    assert counted["failed"] == failures > 0

    failed = next(event for line in written if (event := decode_event(line)).stage == Stage.FAILED)
    told = await desk.run("explain", "--lake", lake, "--notification", failed.notification, "--json", code=1)
    [explained] = json.loads(told)["notifications"]
    assert explained["stopped_at"] == "failed"

    await desk.run("report", "--lake", lake, "--out", report)
    for folder in (lake, report, smp_events, ntf_events):
        for path, text in texts(folder):
            assert not [each for each in clear if each in text], path
