"""Counters in the reference's terms, over restarts and over days."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

from tocsin.operate.metrics import totals
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.smp_router.statistics.statistics import (
    COUNTERS,
    DAILY_COLUMNS,
    SmpStatistics,
    SmpStoreCounts,
)
from tocsin.smp_router.statistics.statistics_lines import StatisticsRecord, parse_statistics

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
STORE = SmpStoreCounts(queues=3, messages=4, notifiers=2)


def saved(statistics: SmpStatistics, now: datetime = NOW) -> StatisticsRecord:
    return parse_statistics("\n".join(statistics.record(STORE, now).lines()))


def test_every_key_is_one_counter() -> None:
    assert set(COUNTERS.values()) <= {each.name for each in totals(SmpCounters())}
    assert len(set(COUNTERS.values())) == len(COUNTERS)


def test_counting_goes_on_after_a_restart() -> None:
    first = SmpCounters()
    for number, name in enumerate(COUNTERS.values(), start=1):
        setattr(first, name, number)
    first.active.used(b"queue", int(NOW.timestamp()), notify=True)
    before = saved(SmpStatistics(first, since=NOW))
    second = SmpCounters()
    statistics = SmpStatistics(second, since=datetime.now(UTC))
    statistics.restore(before, NOW)
    assert [(each.name, each.value) for each in totals(second)] == [
        (each.name, each.value) for each in totals(first)
    ]
    assert saved(statistics) == before
    second.messages_sent += 10
    assert saved(statistics).values["msgSent"] == before.values["msgSent"] + 10


def test_what_we_do_not_count_is_carried_along() -> None:
    statistics = SmpStatistics(SmpCounters(), since=NOW)
    statistics.restore(StatisticsRecord(NOW, {"msgGetNoMsg": 7, "rcvServices.subEnd": 2}), NOW)
    assert saved(statistics).values["msgGetNoMsg"] == 7
    assert saved(statistics).values["rcvServices.subEnd"] == 2


def test_deleted_queues_are_secured_or_new_and_requests_failed_or_not() -> None:
    counters = SmpCounters(
        queues_deleted=5, queues_deleted_secured=2, proxy_requests=9, proxy_connect_errors=4
    )
    found = saved(SmpStatistics(counters, since=NOW)).values
    assert (found["qDeletedAll"], found["qDeletedNew"], found["qDeletedSecured"]) == (5, 3, 2)
    assert (found["pRelays.requests"], found["pRelays.successes"], found["pRelays.errorsConnect"]) == (
        9,
        5,
        4,
    )
    assert (found["qCount"], found["ntfCount"]) == (3, 2)


def cells(line: str) -> dict[str, str]:
    return dict(zip(DAILY_COLUMNS, line.split(","), strict=True))


def test_a_day_has_one_line_and_the_next_begins_at_zero() -> None:
    counters = SmpCounters(messages_sent=5)
    statistics = SmpStatistics(counters, since=NOW)
    counters.active.used(b"queue", int(NOW.timestamp()), notify=False)
    monday = datetime(2026, 11, 16, 0, 0, 1, tzinfo=UTC)
    first = cells(statistics.end_day(STORE, monday))
    assert len(DAILY_COLUMNS) == 75
    assert (first["fromTime"], first["msgSent"], first["msgCount"]) == ("2026-11-15", "5", "4")
    assert [first[f"{period}MsgQueues"] for period in ("day", "week", "month")] == ["1", "1", ""]
    assert first["dayCountNtf"] == "0"
    counters.messages_sent += 2
    assert saved(statistics, monday).values["msgSent"] == 2
    second = cells(statistics.end_day(STORE, datetime(2026, 12, 1, 0, 0, 1, tzinfo=UTC)))
    assert (second["fromTime"], second["msgSent"]) == ("2026-11-16", "2")
    assert [second[f"{period}MsgQueues"] for period in ("day", "week", "month")] == ["0", "", "1"]
    assert counters.messages_sent == 7  # metrics only grow


def test_counters_have_no_other_state_than_totals_and_active_queues() -> None:
    others = {each.name for each in dataclasses.fields(SmpCounters)} - {t.name for t in totals(SmpCounters())}
    assert others == {"active"}
