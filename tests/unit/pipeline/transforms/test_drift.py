"""Differing queues with their kind of drift and repair: one queue for each kind."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from tocsin.events.queue_exports import (
    NO_SERVICE,
    ExportedQueue,
    SubscribedQueue,
    first_notifier_row,
    first_subscribed_row,
    notifier_queue,
    subscribed_queue,
)
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS
from tocsin.pipeline.schemas.queue_exports import NOTIFIERS, SUBSCRIPTIONS
from tocsin.pipeline.transforms.drift import (
    drift_counts,
    drift_table,
    drifted_queues,
    notifier_sums,
    subscribed_sums,
)

KEY = bytes(range(32))
OURS = b"o" * 24
ADDRESS = "smp://AAEC@smp1.example"


def subscribed(
    name: str,
    status: str = "ACTIVE",
    *,
    associated: bool = True,
    token_active: bool = True,
    router: str = ADDRESS,
) -> SubscribedQueue:
    return subscribed_queue(
        key_hash=KEY,
        router=router,
        notifier_id=name.encode(),
        status=status,
        associated=associated,
        service_id=OURS,
        token_active=token_active,
        taken_at=1,
    )


def notifier(name: str, service: bytes | None = OURS) -> ExportedQueue:
    return notifier_queue(
        key_hash=KEY, router=ADDRESS, notifier_id=name.encode(), service_id=service, taken_at=2
    )


def subscriptions(spark: SparkSession, *rows: SubscribedQueue) -> DataFrame:
    return frame(spark, [first_subscribed_row(1), *rows], SUBSCRIPTIONS)


def notifiers(spark: SparkSession, *rows: ExportedQueue) -> DataFrame:
    return frame(spark, [first_notifier_row(KEY, ADDRESS, 2), *rows], NOTIFIERS)


def frame(spark: SparkSession, rows: Sequence[object], schema: object) -> DataFrame:
    return spark.createDataFrame([tuple(getattr(row, n) for n in schema.names) for row in rows], schema)  # type: ignore[attr-defined, call-overload, no-any-return]


def services(spark: SparkSession) -> DataFrame:
    ours = subscribed("x")
    return spark.createDataFrame([(ours.server, ours.service)], "server long, ours long")


def found(spark: SparkSession, ntf: DataFrame, smp: DataFrame) -> set[tuple[str, str, str]]:
    names = {subscribed(name).notifier_id: name for name in "abcdefghij"}
    rows = drifted_queues(ntf, smp, services(spark)).collect()
    return {(names[row["notifier_id"]], row["kind"], row["action"]) for row in rows}


def test_every_way_to_differ_has_its_kind_and_action(spark: SparkSession) -> None:
    ntf = subscriptions(
        spark,
        subscribed("a"),
        subscribed("b"),
        subscribed("c", token_active=False),
        subscribed("d"),
        subscribed("e"),
        subscribed("f", associated=False),
        subscribed("g", "AUTH", associated=False),
    )
    smp = notifiers(
        spark,
        notifier("a"),
        notifier("d", None),
        notifier("e", b"x" * 24),
        notifier("f"),
        notifier("g"),
        notifier("h"),
    )
    assert found(spark, ntf, smp) == {
        ("b", "missing_at_smp", "recreate"),
        ("c", "missing_at_smp", "remove"),
        ("d", "not_associated", "resubscribe"),
        ("e", "not_associated", "resubscribe"),
        ("f", "unnoticed_association", "resubscribe"),
        ("g", "ended_at_ntf", "resubscribe"),
        ("h", "unknown_at_ntf", "report"),
    }


def test_what_is_none_of_our_business_is_no_drift(spark: SparkSession) -> None:
    ntf = subscriptions(
        spark, subscribed("a", associated=False), subscribed("b", "DELETED"), subscribed("c", "ERR x")
    )
    smp = notifiers(spark, notifier("a", None), notifier("c", None), notifier("d", None), notifier("e", b"x"))
    assert found(spark, ntf, smp) == set()


def test_of_two_subscriptions_of_a_queue_the_one_that_works_stays(spark: SparkSession) -> None:
    other = "smp://AAEC@smp1.example,abc.onion"
    ntf = subscriptions(
        spark, subscribed("a", "END", associated=False), subscribed("a", router=other), subscribed("b")
    )
    smp = notifiers(spark, notifier("a"), notifier("b"))
    [row] = drifted_queues(ntf, smp, services(spark)).collect()
    assert (row["kind"], row["action"], row["router"], row["status"]) == (
        "duplicate",
        "remove",
        ADDRESS,
        "END",
    )


def test_sums_of_both_sides_are_equal_only_for_the_same_queues(spark: SparkSession) -> None:
    here = subscribed_sums(subscriptions(spark, subscribed("a"), subscribed("b"), subscribed("c", "END")))
    [sums] = [row for row in here.collect() if row["wanted"]]
    same = notifier_sums(notifiers(spark, notifier("b"), notifier("a"), notifier("z", None))).collect()
    by_service = {row["service"]: row for row in same}
    assert set(by_service) == {sums["service"], NO_SERVICE}
    assert by_service[sums["service"]][2:] == sums[4:]
    [other] = notifier_sums(notifiers(spark, notifier("a"), notifier("c"))).collect()
    assert other["queues"] == sums["queues"]
    assert other[2:] != sums[4:]


def test_the_table_has_counts_of_large_hosts_and_no_ids(spark: SparkSession) -> None:
    ntf, smp = subscriptions(spark, subscribed("a"), subscribed("b")), notifiers(spark)
    counts = drift_counts(drifted_queues(ntf, smp, services(spark)))
    server = subscribed("a").server
    hosts = spark.createDataFrame(
        [(server, "smp1.example", 20), (7, "smp2.example", 30), (8, "tiny.example", 3)],
        "server long, smp_host string, subscribed long",
    )
    rows = drift_table(counts, hosts, day="2026-11-15", smallest=10).collect()
    assert {(row["smp_host"], row["kind"], row["queues"], str(row["day"])) for row in rows} == {
        ("smp1.example", "missing_at_smp", 2, "2026-11-15"),
        ("smp2.example", "none", 0, "2026-11-15"),
        (SMALL_GROUPS, "none", 0, "2026-11-15"),
    }
