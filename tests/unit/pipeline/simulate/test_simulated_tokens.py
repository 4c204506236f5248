from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from tocsin.pipeline.simulate.population import Population
from tocsin.pipeline.simulate.simulated_tokens import SUMMED, simulated_tokens, sums_of_first

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
    expected = (
        POPULATION.queues_per_token,
        POPULATION.subscribed_per_token,
        POPULATION.messages_per_token,
        POPULATION.messages_per_token * (1 - POPULATION.muted),
    )
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


def test_sums_are_of_the_first_devices(spark: SparkSession) -> None:
    tokens = simulated_tokens(spark.range(30), POPULATION)
    row = sums_of_first(tokens, numbers=[10, 30]).collect()[0]
    rows = tokens.orderBy("id").collect()
    for name in SUMMED:
        assert row[f"{name}_10"] == pytest.approx(sum(each[name] for each in rows[:10]))
        assert row[f"{name}_30"] == pytest.approx(sum(each[name] for each in rows))
    assert row["squares_10"] == pytest.approx(sum(each["pushes"] ** 2 for each in rows[:10]))


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
