"""Cells of enough devices: an adversary who has all tables and the report cannot single out fewer devices."""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pytest
from pyspark.sql import Row, SparkSession

from tests.doubles.delivery_lines import NOON, SECOND, event, token_change
from tests.unit.pipeline.update.lake_updates import publish_events
from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import (
    FUNNEL_TABLE,
    LATENCY_TABLE,
    OUTCOMES_TABLE,
    SERVERS_TABLE,
    TOKENS_TABLE,
    TableSpec,
)
from tocsin.pipeline.report.collection import Collection
from tocsin.pipeline.report.figures import Days
from tocsin.pipeline.report.files import csv_files
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS
from tocsin.pipeline.transforms.latency_spans import SPANS
from tocsin.pipeline.transforms.small_groups import cell_hours
from tocsin.pipeline.update.build import build

pytestmark = pytest.mark.timeout(400)
LEAST = 4
HOUR = 3600 * SECOND
DAY = date(2026, 11, 15)


@dataclass(frozen=True)
class Truth:
    """One notification, as the adversary does not know it."""

    hour: int
    host: str
    provider: str
    token: int
    end: Stage
    reason: str
    stages: frozenset[Stage]


def day_of_traffic(seed: int) -> tuple[list[Truth], list[DeliveryEvent]]:
    """Busy and quiet hours, large and small hosts, common and rare providers, reasons and stages."""
    chance = random.Random(seed)
    truths, written = [], []
    for number in range(160):
        hour = chance.choices([0, 1, 2, 3, 4], [10, 1, 5, 1, 8])[0]
        host = chance.choices(["a", "b", "c", "d", "e"], [20, 10, 3, 1, 1])[0]
        token = chance.randrange(30)
        provider = "apns_prod" if token < 26 else "apns_dev"
        end = chance.choices([Stage.ACCEPTED, Stage.FAILED, Stage.SHED], [8, 6, 1])[0]
        reason = chance.choices(["410", "413", "503"], [12, 4, 1])[0] if end is not Stage.ACCEPTED else ""
        stages = [Stage.RECEIVED, end] + ([Stage.WOKEN] if end is Stage.ACCEPTED and number % 19 == 0 else [])
        at = NOON + hour * HOUR + number * SECOND
        for step, stage in enumerate(stages):
            written.append(
                event(
                    stage,
                    number,
                    at=at + step * 1000,
                    host=host,
                    token=token,
                    reason=reason,
                    provider=provider,
                )
            )
        truths.append(Truth(12 + hour, host, provider, token, end, reason, frozenset(stages)))
    for number, token in enumerate(range(12)):
        status = ["ACTIVE", "INVALID,BAD", "INVALID,TOPIC", "EXPIRED"][
            min(number // 4, 3) if number < 9 else 3
        ]
        written.append(token_change(number, status, token=token))
    return truths, written


@pytest.fixture(scope="module", params=[1, 2, 3])
def published(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[Lake, list[Truth]]:
    """Built in two parts, so that a later hour changes how earlier ones are counted."""
    lake = Lake(tmp_path_factory.mktemp("adversary") / "lake")
    truths, written = day_of_traffic(request.param)
    publish_events(spark, lake, [each for each in written if each.at < NOON + 2 * HOUR], "first")
    build(spark, lake, smallest_group=LEAST)
    publish_events(spark, lake, [each for each in written if each.at >= NOON + 2 * HOUR], "second")
    assert build(spark, lake, smallest_group=LEAST).failures == {}
    return lake, truths


def rows(spark: SparkSession, lake: Lake, table: TableSpec) -> list[Row]:
    return lake.table(table).read(spark).collect()


def tokens(truths: Iterable[Truth]) -> int:
    return len({each.token for each in truths})


class Adversary:
    """Knows the rule, reads the funnel, and works out which notifications each row must be about."""

    def __init__(self, funnel: list[Row], truths: list[Truth]) -> None:
        hours = sorted({row.hour for row in funnel})
        named = {(row.hour, row.smp_host) for row in funnel}
        providers = {(row.hour, row.smp_host, row.provider) for row in funnel}
        self.cells: dict[tuple[int, str, str], list[Truth]] = defaultdict(list)
        for each in truths:
            hour = max((hour for hour in hours if hour <= each.hour), default=hours[0])
            host = each.host if (hour, each.host) in named else SMALL_GROUPS
            provider = each.provider if (hour, host, each.provider) in providers else SMALL_GROUPS
            self.cells[hour, host, provider].append(each)


def test_every_row_of_the_funnel_is_about_enough_devices(
    spark: SparkSession, published: tuple[Lake, list[Truth]]
) -> None:
    """The rows are all there is: totals are their sums, so differences of totals are sums of rows, too."""
    lake, truths = published
    funnel = rows(spark, lake, FUNNEL_TABLE)
    cells = Adversary(funnel, truths).cells
    assert {(row.hour, row.smp_host, row.provider) for row in funnel} == set(cells)
    for row in funnel:
        about = cells[row.hour, row.smp_host, row.provider]
        assert (row.received, row.tokens) == (len(about), tokens(about))
        assert row.tokens >= LEAST
    assert sum(row.received for row in funnel) == len(truths)
    assert {row.smp_host for row in rows(spark, lake, SERVERS_TABLE)} == {row.smp_host for row in funnel}


def test_the_rest_of_the_reasons_is_about_enough_devices(
    spark: SparkSession, published: tuple[Lake, list[Truth]]
) -> None:
    lake, truths = published
    cells = Adversary(rows(spark, lake, FUNNEL_TABLE), truths).cells
    shown: dict[tuple[int, str, str, str], dict[str, int]] = defaultdict(dict)
    for row in rows(spark, lake, OUTCOMES_TABLE):
        shown[row.hour, row.smp_host, row.provider, row.outcome][row.reason or ""] = row.n
    for (hour, host, provider, outcome), reasons in shown.items():
        about = [each for each in cells[hour, host, provider] if each.end == outcome]
        assert sum(reasons.values()) == len(about)
        for reason in reasons.keys() - {"", SMALL_GROUPS}:
            assert tokens(each for each in about if each.reason == reason) >= LEAST
        rest = [each for each in about if each.reason not in reasons]
        assert not rest or len(reasons) == 1 or tokens(rest) >= LEAST


def test_no_sketch_holds_the_times_of_few_devices(
    spark: SparkSession, published: tuple[Lake, list[Truth]]
) -> None:
    lake, truths = published
    cells = Adversary(rows(spark, lake, FUNNEL_TABLE), truths).cells
    found = rows(spark, lake, LATENCY_TABLE)
    named = {(row.hour, row.smp_host, row.provider, row.leg) for row in found}
    for row in found:
        about = [
            each
            for (hour, host, provider), members in cells.items()
            if hour == row.hour
            and (
                (host, provider) == (row.smp_host, row.provider)
                or (row.smp_host == SMALL_GROUPS and (hour, host, provider, row.leg) not in named)
            )
            for each in members
            if set(SPANS[row.leg]) <= each.stages
        ]
        assert (len(about) == row.n, tokens(about) >= LEAST) == (True, True)


def test_tokens_of_a_day_are_enough(spark: SparkSession, published: tuple[Lake, list[Truth]]) -> None:
    counted = {
        (row.provider, row.change, row.reason): row.tokens for row in rows(spark, published[0], TOKENS_TABLE)
    }
    assert all(number >= LEAST for number in counted.values())
    assert counted["apns_prod", "ACTIVE", None] == 4


def test_the_files_of_the_report_name_nobody_else(
    spark: SparkSession, published: tuple[Lake, list[Truth]]
) -> None:
    lake, truths = published
    shown = {row.smp_host for row in rows(spark, lake, FUNNEL_TABLE)}
    figures = Collection(lake).figures(Days(DAY, DAY), now=datetime(2026, 11, 16, tzinfo=UTC))
    files = {name: list(csv.DictReader(text.splitlines())) for name, text in csv_files(figures).items()}
    assert {row["smp_host"] for row in files["smp_host_hours.csv"]} <= shown
    assert {row["host"] for row in files["smp_hosts.csv"]} <= shown
    for row in files["outcomes.csv"]:
        if row["reason"] not in ("", SMALL_GROUPS):
            assert (
                tokens(each for each in truths if (each.end, each.reason) == (row["outcome"], row["reason"]))
                >= LEAST
            )
    assert all(int(row["tokens"]) >= LEAST for row in files["tokens.csv"])


@pytest.mark.parametrize(
    ("sizes", "whole", "expected"),
    [
        ({0: 9, 1: 9}, 9, {0: 0, 1: 1}),
        ({0: 1, 1: 9, 2: 1, 3: 0, 4: 9}, 9, {0: 1, 1: 1, 2: 1, 3: 1, 4: 4}),
        ({0: 1, 1: 2, 2: 3, 3: 9}, 3, {0: 3, 1: 3, 2: 3, 3: 3}),
        ({0: 2, 1: 3}, 5, {0: 0, 1: 0}),
        ({0: 2, 1: 3}, 3, {}),
    ],
)
def test_a_small_hour_is_counted_with_a_large_one(
    sizes: dict[int, int], whole: int, expected: dict[int, int]
) -> None:
    keyed = {("2026-11-15", hour): size for hour, size in sizes.items()}
    found = cell_hours(keyed, {"2026-11-15": whole}, keyed, newest=("2026-11-16", 0), smallest=LEAST)
    assert {hour: cell for (_, hour), cell in found.items()} == expected


def test_the_newest_hour_waits_until_it_is_large_enough() -> None:
    sizes = {("2026-11-15", 0): 9, ("2026-11-15", 1): 3}
    found = cell_hours(sizes, {"2026-11-15": 9}, sizes, newest=("2026-11-15", 1), smallest=LEAST)
    assert found == {("2026-11-15", 0): 0}
