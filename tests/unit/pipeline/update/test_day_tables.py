"""Random histories give the counts of a plain recount, and the same tables in this process as in Spark's tasks."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tests.doubles.delivery_lines import NOON, SECOND, event, subscription_change, token_change
from tests.doubles.lake_rows import tables
from tests.unit.pipeline.rows import counted
from tests.unit.pipeline.transforms.test_event_merge import plainly_merged
from tests.unit.pipeline.update.lake_updates import publish_events
from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.schemas.events import EVENTS
from tocsin.pipeline.schemas.notifications import STAGES
from tocsin.pipeline.transforms.latency_spans import SPANS
from tocsin.pipeline.transforms.notifications import BEST_END_FIRST
from tocsin.pipeline.update import day_tables, event_files, notification_merge
from tocsin.pipeline.update.build import build

FORM = to_arrow_schema(EVENTS)
HOUR = 3600 * SECOND
PERIOD = "20772-0123abcd"
DAY = 24 * HOUR
AN_EVENT = st.fixed_dictionaries(
    {
        "notification_high": st.just(0),
        "notification_low": st.integers(0, 12),
        "stage": st.sampled_from([str(stage) for stage in STAGES]),
        "at": st.integers(NOON, NOON + 9) | st.sampled_from([NOON + HOUR, NOON + 3 * HOUR]),
        "token": st.none() | st.integers(1, 3),
        "queue": st.integers(1, 3),
        "smp_host": st.sampled_from(["a", "b"]),
        "provider": st.sampled_from([None, "apns"]),
        "reason": st.sampled_from([None, "x", "y"]),
        "engine": st.sampled_from([None, "inline", "spark"]),
        "size": st.just(0),
        "attempt": st.just(1),
        "period": st.just(PERIOD),
        "priority": st.none(),
    }
)


class Recount:
    """Counts one notification after the other."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.funnel: dict[Any, Counter[str]] = defaultdict(Counter)
        self.tokens: dict[Any, set[int]] = defaultdict(set)
        self.outcomes: Counter[Any] = Counter()
        self.engines: Counter[Any] = Counter()
        self.spans: dict[Any, list[int]] = defaultdict(list)
        by_token: dict[Any, list[dict[Stage, Any]]] = defaultdict(list)
        for row in rows:
            at = {stage: row[f"{stage}_at"] for stage in STAGES if f"{stage}_at" in row}
            group = (min(at.values()) // HOUR % 24, row.get("smp_host"), row.get("provider"))
            end = next((each for each in BEST_END_FIRST if each in at), None)
            ends = sum(each in at for each in BEST_END_FIRST)
            again = row.get("last_received_at", 0) > at.get(Stage.RECEIVED, NOON * 2)
            for stage in at:
                if stage not in BEST_END_FIRST or stage is end:
                    self.funnel[group][stage] += 1
            self.funnel[group]["pending"] += Stage.RECEIVED in at and not ends
            self.funnel[group]["redelivered"] += again
            self.funnel[group]["ends_twice"] += ends > 1 and not again
            self.funnel[group]["ends_unreceived"] += ends > 0 and Stage.RECEIVED not in at
            if row.get("token") is not None:
                self.tokens[group].add(row["token"])
                if {Stage.ATTEMPTED, Stage.FAILED, Stage.ACCEPTED} & at.keys():
                    by_token[row.get("provider"), row["token"]].append(at)
            if end is not None:
                self.outcomes[*group, end, None if end is Stage.ACCEPTED else row.get("reason")] += 1
            if end in (Stage.ACCEPTED, Stage.FAILED):
                self.engines[group[0], row.get("engine"), end] += 1
            for span, (start, stop) in SPANS.items():
                if start in at and stop in at:
                    self.spans[*group, span].append(at[stop] - at[start])
        self.pushed = Counter(
            "pushed" if any(Stage.ACCEPTED in at for at in every) else "dead" for every in by_token.values()
        )


@given(written=st.lists(AN_EVENT, min_size=1, max_size=60))
def test_random_histories_are_counted_as_one_by_one(written: list[dict[str, Any]]) -> None:
    found = counted(pa.Table.from_pylist(written, FORM))
    plain = Recount(plainly_merged(written))
    groups = {(row.hour, row.smp_host, row.provider): vars(row) for row in found["funnel_hourly"]}
    assert groups.keys() == plain.funnel.keys()
    for group, counts in groups.items():
        assert {name: counts[name] for name in plain.funnel[group]} == plain.funnel[group]
        assert sum(counts[stage] for stage in STAGES) == sum(plain.funnel[group][stage] for stage in STAGES)
        assert counts["tokens"] == len(plain.tokens[group])
    outcomes = {
        (row.hour, row.smp_host, row.provider, row.outcome, row.reason): row.n
        for row in found["outcomes_hourly"]
    }
    assert outcomes == plain.outcomes
    engines = Counter[Any]()
    for row in found["engines_hourly"]:
        engines.update(
            {(row.hour, row.engine, end): getattr(row, end) for end in (Stage.ACCEPTED, Stage.FAILED)}
        )
    assert +engines == plain.engines
    spans = {
        (row.hour, row.smp_host, row.provider, row.leg): (row.n, row.negative)
        for row in found["latency_hourly"]
    }
    assert spans == {key: (len(each), sum(time < 0 for time in each)) for key, each in plain.spans.items()}
    pushed = Counter[str]()
    for row in found["tokens_daily"]:
        pushed[row.change] += row.tokens
    assert pushed == plain.pushed


def history(seed: int) -> list[DeliveryEvent]:
    """Three days, several hosts, tokens of which some are rare, late events, and repeats."""
    chance = random.Random(seed)
    written = []
    for number in range(150):
        at = NOON + chance.randrange(3) * DAY + chance.choice([0, 0, 1, 2, 5]) * HOUR + number * SECOND
        about: dict[str, Any] = {
            "host": chance.choice("aaab") + ".example",
            "period": f"{at // DAY}-0123abcd",
        }
        token = chance.randrange(30)
        written.append(event(Stage.ENQUEUED, number, at=at, **about))
        written.append(event(Stage.RECEIVED, number, at=at + 5, token=token, **about))
        end = chance.choice([Stage.ACCEPTED, Stage.ACCEPTED, Stage.FAILED, Stage.SHED])
        written.append(
            event(
                end, number, at=at + chance.choice([9, HOUR]), token=token, reason="xyz"[number % 3], **about
            )
        )
        if number % 5 == 0:
            written.append(token_change(number, chance.choice(["ACTIVE", "INVALID,BAD"]), token=token))
            written.append(subscription_change(number, "ACTIVE", queue=token, at=at, host=about["host"]))
    chance.shuffle(written)
    return written + written[:20]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("smallest", [1, 4])
def test_tasks_of_spark_make_the_same_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smallest: int
) -> None:
    """In two builds, of which the second finds rows of the first; with few rows at once, and with many pieces."""
    written = history(smallest)
    built = []
    for folder in ("here", "in parts", "apart"):
        if folder == "in parts":
            for module in (event_files, notification_merge, day_tables):
                monkeypatch.setattr(module, "ROWS_AT_ONCE", 7)
        if folder == "apart":
            monkeypatch.setattr(notification_merge, "DRIVERS_ROWS", 0)
            monkeypatch.setattr(notification_merge, "ROWS_OF_PIECE", 40)
            monkeypatch.setattr(event_files, "FILES_OF_SHARE", 5)
            monkeypatch.setattr(day_tables, "TOKEN_ROWS", 20)
        lake = Lake(tmp_path / folder)
        for part in range(2):
            for file in range(2):
                publish_events(spark, lake, written[part::2][file::2], f"part-{part}-{file}")
            assert build(spark, lake, smallest_group=smallest).failures == {}
        built.append({name: rows for name, rows in tables(lake.folder).items() if name != "events"})
    assert built[0] == built[1] == built[2]
    assert {"notifications", "funnel_hourly", "latency_hourly"} <= {
        name for name, rows in built[0].items() if rows
    }
