"""The statistics file, both ways."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.doubles.positional_statistics import LINES, PositionalReader
from tocsin.operate.active_queues import PeriodHashes, id_number
from tocsin.smp_router.statistics.statistics_lines import StatisticsRecord, parse_statistics

SINCE = datetime(2026, 11, 15, 12, 30, 0, 250_000, UTC)
RECORD = StatisticsRecord(
    SINCE,
    {"qCreated": 7, "msgSent": 5, "pRelays.requests": 3, "pMsgFwdsRecv": 2, "ntfServices.subCount": 1},
    PeriodHashes({-5, 3}, {-5, 3, 8}, {-5, 3, 8}),
)


def text_of(record: StatisticsRecord) -> str:
    return "".join(f"{line}\n" for line in record.lines())


def test_file_has_the_lines_of_the_reference() -> None:
    lines = list(RECORD.lines())
    assert len(lines) == 95  # smp-tests.md R2
    assert [line.split("=")[0] for line in lines[1 : 1 + len(LINES)]] == list(LINES)
    assert lines[:4] == ["fromTime=2026-11-15T12:30:00.250000Z", "qCreated=7", "qSecured=0", "qDeletedAll=0"]
    at = lines.index("activeQueues:")
    assert lines[at + 1 : at + 5] == [
        "dayHashes=-5,3",
        "weekHashes=-5,3,8",
        "monthHashes=-5,3,8",
        "activeQueuesNtf:",
    ]
    at = lines.index("pRelays:")
    assert lines[at + 1 : at + 6] == [
        "requests=3",
        "successes=0",
        "errorsConnect=0",
        "errorsCompat=0",
        "errorsOther=0",
    ]
    assert lines[lines.index("rcvServices:") - 1] == "pMsgFwdsRecv=2"
    assert lines[lines.index("ntfServices:") + 5] == "subCount=1"


@pytest.mark.parametrize("knows_names", [False, True], ids=["6.5.5", "7.0"])
def test_reference_reads_the_file_by_position(knows_names: bool) -> None:
    found = PositionalReader(list(RECORD.lines()), knows_names=knows_names).values
    assert {key: value for key, value in found.items() if value} == RECORD.values


def test_section_of_names_is_at_the_end_and_only_7_0_reads_it() -> None:
    record = replace(RECORD, values={**RECORD.values, "rslvStats.notFound": 4}, names=True)
    lines = list(record.lines())
    assert len(lines) == 101
    assert lines[-6:] == ["rslvStats:", "reqs=0", "succ=0", "notFound=4", "resolverErrs=0", "disabled=0"]
    assert PositionalReader(lines, knows_names=True).values["rslvStats.notFound"] == 4
    with pytest.raises(AssertionError, match="unexpected line: rslvStats:"):
        PositionalReader(lines, knows_names=False)
    again = parse_statistics(text_of(record))
    assert again.names
    assert list(again.lines()) == lines
    assert not parse_statistics(text_of(RECORD)).names


def test_counters_that_older_files_of_ours_had_are_left_out() -> None:
    lines = list(RECORD.lines())
    lines.insert(lines.index("ntfDeletedB=0") + 1, "ntfCount=3")
    lines.remove("ntfNewCreated=0")
    PositionalReader(list(parse_statistics("\n".join(lines)).lines()), knows_names=False)


def test_file_reads_back() -> None:
    found = parse_statistics(text_of(RECORD))
    assert {key: value for key, value in found.values.items() if value} == RECORD.values
    assert (found.since, found.active, found.active_notifications) == (SINCE, RECORD.active, PeriodHashes())


def test_shorter_file_of_an_older_reference_is_read() -> None:
    old = (
        "fromTime=2023-01-02T03:04:05.678901234Z\nqCreated=1\nqSecured=2\nqDeleted=3\nqSubNoMsg=9\nmsgSent=4\n"
        "msgRecv=5\nactiveQueues:\nday=YWJj\nweek=YWJj,ZGVm\nmonth=YWJj,ZGVm\n"
    )
    found = parse_statistics(old)
    assert found.values == {"qCreated": 1, "qSecured": 2, "qDeletedAll": 3, "msgSent": 4, "msgRecv": 5}
    assert found.active.day == {id_number(b"abc")}
    assert found.active.counts == (1, 2, 2)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "fromTime is missing"),
        ("qCreated=1\n", "fromTime is missing"),
        ("fromTime=yesterday\n", "yesterday"),
        ("fromTime=2026-11-15T12:30:00Z\nqCreated=many\n", "qCreated is not a number"),
        ("fromTime=2026-11-15T12:30:00Z\nqCreated\n", "line 2 is neither"),
        ("fromTime=2026-11-15T12:30:00Z\nactiveQueues:\ndayHashes=1,,2\n", "dayHashes is not a number"),
        ("\0\1\2", "line 1 is neither"),
    ],
)
def test_what_is_no_statistics_file_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_statistics(text)
