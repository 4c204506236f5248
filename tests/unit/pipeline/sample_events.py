"""Events of a few notifications, for tests of the lake."""

from __future__ import annotations

import base64
import hashlib
from datetime import date

from pyspark.sql import SparkSession

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE
from tocsin.pipeline.schemas.events import EVENT_LINE
from tocsin.pipeline.transforms.event_lines import as_table

DAY = date(2026, 11, 15)
PERIOD = f"{(DAY - date(1970, 1, 1)).days}-5eed5eed"
MIDNIGHT = (DAY - date(1970, 1, 1)).days * 86_400_000_000
NOON = MIDNIGHT + 12 * 3_600_000_000


def pseudonym(name: str) -> str:
    """22 characters, like a real pseudonym."""
    return base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest())[:22].decode()


def event(stage: Stage, at: int, **values: object) -> dict[str, object]:
    """`at`: microseconds since noon. Names of notification, queue and token become pseudonyms."""
    named = {
        key: pseudonym(str(value)) if key in ("notification", "queue", "token") else value
        for key, value in values.items()
    }
    smp = stage in (Stage.ENQUEUED, Stage.SENT, Stage.EXPIRED, Stage.DROPPED)
    return {
        "stage": str(stage),
        "at": NOON + at,
        "mono": at,
        "router": "smp-1" if smp else "ntf-1",
        "period": PERIOD,
        **named,
    }


def way(name: str, at: int, *stages: tuple[Stage, int], **values: object) -> list[dict[str, object]]:
    """Events of one notification: stages with microseconds after `at`."""
    usual: dict[str, object] = {"notification": name, "queue": f"queue of {name}", "smp_host": "smp1.example"}
    return [
        event(
            stage, at + after, **{**usual, **values, **({"attempt": 1} if stage is Stage.ATTEMPTED else {})}
        )
        for stage, after in stages
    ]


def write_events(spark: SparkSession, lake: Lake, events: list[dict[str, object]]) -> None:
    rows = [
        [{"id": f"e{number}", **each}.get(name) for name in EVENT_LINE.names]
        for number, each in enumerate(events)
    ]
    lake.table(EVENTS_TABLE).publish(as_table(spark.createDataFrame(rows, EVENT_LINE)), key="sample")
