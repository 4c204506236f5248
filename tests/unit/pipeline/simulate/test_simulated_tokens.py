from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from tocsin.pipeline.simulate.population import Population
from tocsin.pipeline.simulate.simulated_tokens import (
    SQUARES,
    SUMMED,
    simulated,
    simulated_tokens,
    sums_between,
)

POPULATION = Population(seed=7)


def test_devices_do_not_depend_on_how_the_work_is_split(spark: SparkSession) -> None:
    one, many = (simulated_tokens(spark.range(0, 50, 1, parts), POPULATION) for parts in (1, 7))
    assertDataFrameEqual(one, many)
    part = simulated_tokens(spark.range(20, 30), POPULATION)
    assertDataFrameEqual(part, one.where("id BETWEEN 20 AND 29"))


def test_another_seed_is_another_population(spark: SparkSession) -> None:
    first, other = (
        simulated_tokens(spark.range(20), Population(seed=seed)).agg(F.sum("queues")).collect()[0][0]
        for seed in (1, 2)
    )
    assert first != other


def test_means_are_those_that_the_parameters_promise(spark: SparkSession) -> None:
    n = 40_000
    names = ("queues", "subscribed", "messages", "notifications")
    found = simulated_tokens(spark.range(n), POPULATION)
    row = found.agg(
        *(F.avg(name).alias(name) for name in names), *(F.stddev(name).alias(f"{name}_sd") for name in names)
    ).collect()[0]
    members = POPULATION.groups_per_token * (POPULATION.group_size - 1)
    messages = (
        POPULATION.contacts_per_token * POPULATION.messages_per_contact
        + members * POPULATION.messages_per_member
    )
    heard = 1 - POPULATION.muted
    expected = (POPULATION.queues_per_token, POPULATION.queues_per_token * heard, messages, messages * heard)
    for name, mean in zip(names, expected, strict=True):
        assert abs(row[name] - mean) < 4 * row[f"{name}_sd"] / n**0.5, name


def test_pushes_are_never_more_than_notifications_and_share_when_busy(spark: SparkSession) -> None:
    slow = Population(seed=7, push_seconds=600)
    row = (
        simulated_tokens(spark.range(500), slow)
        .agg(F.max(F.col("pushes") - F.col("notifications")), F.max("pushes"))
        .collect()[0]
    )
    assert row[0] <= 0
    assert row[1] < 86_400 / 600


def test_sums_are_of_the_first_devices_however_they_are_portioned(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = simulated_tokens(spark.range(30), POPULATION).orderBy("id").collect()
    for portion in (7, 10, 1_000):
        monkeypatch.setattr("tocsin.pipeline.simulate.simulated_tokens.PORTION", portion)
        said: list[str] = []
        found = simulated(spark, POPULATION, [30, 10, 1], 1_000, said.append)
        assert [each.tokens for each in found] == [30, 10, 1]
        for each in found:
            assert (each.drawn, each.error) == (each.tokens, 0)
            for name in SUMMED:
                assert getattr(each, name) == pytest.approx(sum(row[name] for row in rows[: each.tokens]))
        assert said[-1] == "drawing devices: 30 of 30"


def test_squares_are_of_pushes(spark: SparkSession) -> None:
    tokens = simulated_tokens(spark.range(30), POPULATION)
    rows = tokens.orderBy("id").collect()
    sums = {row["part"]: row[SQUARES] for row in sums_between(tokens, ends=[10]).collect()}
    assert sums[0] == pytest.approx(sum(each["pushes"] ** 2 for each in rows[:10]))
    assert sums[1] == pytest.approx(sum(each["pushes"] ** 2 for each in rows[10:]))


def test_nobody_has_what_the_population_has_none_of(spark: SparkSession) -> None:
    lonely = Population(
        contacts_per_token=2,
        groups_per_token=0,
        activity_spread=0,
        messages_per_contact=3,
        muted=0,
        push_seconds=0,
    )
    rows = simulated_tokens(spark.range(50), lonely).collect()
    assert all(row["queues"] == int(row["queues"]) for row in rows)
    assert all(row["pushes"] == pytest.approx(3 * row["queues"]) for row in rows)
