"""Counters in the reference's terms, over restarts and over days."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

from tests.doubles.positional_statistics import PositionalReader
from tocsin.operate.metrics import totals
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.smp_router.statistics.statistics import (
    COUNTERS,
    DAILY_COLUMNS,
    SmpStatistics,
    SmpStoreCounts,
)
from tocsin.smp_router.statistics.statistics_lines import StatisticsRecord, parse_statistics

PARTS = ("rcv_services", "ntf_services", "names")
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
STORE = SmpStoreCounts(queues=3, messages=4, notifiers=2)


def saved(statistics: SmpStatistics, now: datetime = NOW) -> StatisticsRecord:
    return parse_statistics("\n".join(statistics.record(STORE, now).lines()))


def counted_names() -> dict[str, int]:
    """Every counter with its value, those of services and names with the name of their part."""
    return values_of(SmpCounters())


def values_of(counters: SmpCounters) -> dict[str, int]:
    parts = {"": counters, **{f"{part}.": getattr(counters, part) for part in PARTS}}
    return {f"{prefix}{each.name}": each.value for prefix, part in parts.items() for each in totals(part)}


def test_every_line_of_the_file_is_one_counter() -> None:
    assert set(COUNTERS.values()) <= set(counted_names())
    assert len(set(COUNTERS.values())) == len(COUNTERS)
    lines = StatisticsRecord(NOW, {}, names=True).lines()
    keys = set(PositionalReader(list(lines), knows_names=True).values)
    assert keys - set(COUNTERS) == {"qCount", "ntfCreated"}
    assert set(COUNTERS) <= keys


def test_counting_goes_on_after_a_restart() -> None:
    first = SmpCounters()
    for number, name in enumerate(COUNTERS.values(), start=1):
        part, _, last = name.rpartition(".")
        setattr(getattr(first, part) if part else first, last, number)
    first.notifiers_created = first.notifiers_created_by_new + 1000
    first.active.used(b"queue", int(NOW.timestamp()), notify=True)
    before = saved(SmpStatistics(first, since=NOW, names=True))
    second = SmpCounters()
    statistics = SmpStatistics(second, since=datetime.now(UTC))
    statistics.restore(before, NOW)
    assert values_of(second) == values_of(first)
    assert saved(statistics) == before
    assert before.values["ntfCreated"] == 1000
    second.messages_sent += 10
    assert saved(statistics).values["msgSent"] == before.values["msgSent"] + 10


def test_every_number_of_the_reference_is_passed_on() -> None:
    """Whatever is in a file of 7.0 is in ours too, though names are not resolved here."""
    lines = list(StatisticsRecord(NOW, {}, names=True).lines())
    numbered = []
    for number, line in enumerate(lines):
        name, sign, _ = line.partition("=")
        is_number = sign and name != "fromTime" and not name.endswith("Hashes")
        numbered.append(f"{name}={number}" if is_number else line)
    statistics = SmpStatistics(SmpCounters(), since=NOW)
    statistics.restore(parse_statistics("\n".join(numbered)), NOW)
    store = SmpStoreCounts(queues=numbered.index("qCount=8"), messages=0, notifiers=0)
    assert list(statistics.record(store, NOW).lines()) == numbered


def test_section_of_names_is_written_only_where_names_are_resolved_or_7_0_wrote_it() -> None:
    counters = SmpCounters()
    counters.names.disabled = 3
    plain = SmpStatistics(counters, since=NOW)
    assert len(list(plain.record(STORE, NOW).lines())) == 95
    assert len(plain.end_day(STORE, NOW).split(",")) == 75
    resolving = SmpStatistics(counters, since=NOW, names=True)
    assert list(resolving.record(STORE, NOW).lines())[-1] == "disabled=3"
    assert resolving.end_day(STORE, NOW).split(",")[75:] == ["0", "0", "0", "0", "3"]
    plain.restore(StatisticsRecord(NOW, {}, names=True), NOW)
    assert len(list(plain.record(STORE, NOW).lines())) == 101


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
    assert others == {"active", *PARTS}
