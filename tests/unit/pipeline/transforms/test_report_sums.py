from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from tocsin.pipeline.schemas.hourly import FUNNEL_HOURLY, SERVERS_HOURLY, SMALL_GROUPS
from tocsin.pipeline.transforms import report_sums

MONDAY = date(2026, 11, 9)


def funnel(spark: SparkSession, *rows: dict[str, object]) -> DataFrame:
    usual = dict.fromkeys(report_sums.FUNNEL_COUNTS, 0) | {"provider": "apns_prod", "tokens": 20}
    whole = [{**usual, "day": MONDAY, **row} for row in rows]
    return spark.createDataFrame(
        [[row[name] for name in FUNNEL_HOURLY.names] for row in whole], FUNNEL_HOURLY
    )


def test_counts_are_added_up_and_tokens_of_hours_are_not(spark: SparkSession) -> None:
    hours = funnel(
        spark,
        {"smp_host": "a", "hour": 1, "received": 5, "failed": 1},
        {"smp_host": "b", "hour": 1, "received": 2, "difference": 1},
        {"smp_host": "a", "hour": 2, "received": 3},
    )
    [row] = report_sums.funnel_sums(hours, by=()).collect()
    assert (row["received"], row["failed"], row["difference"]) == (10, 1, 1)
    assert "tokens" not in row.asDict()
    by_hour = report_sums.funnel_sums(hours, by=("hour",)).select("hour", "received")
    assertDataFrameEqual(by_hour, spark.createDataFrame([(1, 7), (2, 3)], "hour int, received long"))


def test_hours_of_the_day_are_added_up_over_days(spark: SparkSession) -> None:
    hours = funnel(
        spark,
        {"smp_host": "a", "hour": 1, "received": 5, "failed": 1, "shed": 2},
        {"smp_host": "a", "hour": 1, "received": 5, "day": date(2026, 11, 10)},
        {"smp_host": None, "hour": 1, "received": 1},
    )
    expected = [("a", 1, 10, 3, 0), (SMALL_GROUPS, 1, 1, 0, 0)]
    ddl = "smp_host string, hour int, received long, lost long, difference long"
    assertDataFrameEqual(report_sums.host_hours(hours), spark.createDataFrame(expected, ddl))


def test_rare_reasons_are_counted_together(spark: SparkSession) -> None:
    outcomes = spark.createDataFrame(
        [
            ("failed", "503", 6),
            ("failed", "503", 6),
            ("failed", "rare", 1),
            ("failed", "odd", 2),
            ("accepted", None, 3),
        ],
        "outcome string, reason string, n long",
    )
    expected = [("failed", "503", 12), ("failed", SMALL_GROUPS, 3), ("accepted", "", 3)]
    assertDataFrameEqual(
        report_sums.outcome_sums(outcomes, smallest=10),
        spark.createDataFrame(expected, "outcome string, reason string, n long"),
    )


def test_few_tokens_are_left_out(spark: SparkSession) -> None:
    tokens = spark.createDataFrame(
        [(MONDAY, "pushed", None, 6), (MONDAY, "pushed", None, 6), (MONDAY, "dead", "expired", 9)],
        "day date, change string, reason string, tokens long",
    )
    [row] = report_sums.token_days(tokens, smallest=10).collect()
    assert (row["change"], row["reason"], row["tokens"]) == ("pushed", "", 12)


def servers(spark: SparkSession, *rows: dict[str, object]) -> DataFrame:
    usual: dict[str, object] = dict.fromkeys(SERVERS_HOURLY.names, 0)
    usual |= {"storm": False, "skew_us": None, "longest_gap_seconds": None, "day": MONDAY}
    return spark.createDataFrame(
        [[{**usual, **row}[name] for name in SERVERS_HOURLY.names] for row in rows], SERVERS_HOURLY
    )


def test_health_of_a_host_is_its_worst_hour(spark: SparkSession) -> None:
    hours = servers(
        spark,
        {"smp_host": "a", "hour": 1, "received": 5, "storm": True, "longest_gap_seconds": 60, "skew_us": 900},
        {"smp_host": "a", "hour": 2, "received": 5, "errors": 2, "longest_gap_seconds": 300, "skew_us": -7},
        {"smp_host": "b", "hour": 2, "subscribed": 4},
    )
    found = {row["smp_host"]: row for row in report_sums.server_health(hours).collect()}
    a, b = found["a"], found["b"]
    assert (a["received"], a["errors"], a["storm_hours"], a["longest_gap_seconds"], a["skew_us"]) == (
        10,
        2,
        1,
        300,
        -7,
    )
    assert (b["subscribed"], b["longest_gap_seconds"], b["skew_us"], b["silent_hours"]) == (4, 0, None, 0)


def test_an_hour_is_silent_if_it_is_busy_on_other_days(spark: SparkSession) -> None:
    busy, quiet = [
        [{"smp_host": host, "hour": 5, "received": n, "day": date(2026, 11, day)} for day in (9, 10, 11)]
        for host, n in (("busy", 40), ("quiet", 3))
    ]
    other = [
        {"smp_host": "other", "hour": 5, "received": 40, "day": date(2026, 11, day)}
        for day in (9, 10, 11, 12)
    ]
    found = {
        row["smp_host"]: row["silent_hours"]
        for row in report_sums.silences(servers(spark, *busy, *quiet, *other)).collect()
    }
    assert found == {"busy": 1, "quiet": 0, "other": 0}


def test_quarantined_lines_are_counted_by_reason_and_segment(spark: SparkSession) -> None:
    lines = spark.createDataFrame(
        [("not JSON", "s1"), ("not JSON", "s1"), ("no at", "s2")], "reason string, segment string"
    )
    found = {
        row["reason"]: (row["lines"], row["segments"])
        for row in report_sums.quarantine_reasons(lines).collect()
    }
    assert found == {"not JSON": (2, 1), "no at": (1, 1)}


def test_hosts_with_little_drift_are_not_named(spark: SparkSession) -> None:
    drift = spark.createDataFrame(
        [("a", "lost", 30), ("b", "lost", 3), ("c", "lost", 4)], "smp_host string, kind string, queues long"
    )
    found = {
        row["smp_host"]: row["queues"] for row in report_sums.drift_by_host(drift, smallest=10).collect()
    }
    assert found == {"a": 30, SMALL_GROUPS: 7}
