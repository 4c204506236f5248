"""An NTF router's counters in the reference's terms."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.statistics.statistics import COUNTERS, DAILY_COLUMNS, KEYS, OWN, NtfStatistics
from tocsin.operate.metrics import totals

SUNDAY = datetime(2026, 11, 15, 12, tzinfo=UTC)
MONDAY_BEGINS = datetime(2026, 11, 16, tzinfo=UTC)
TUESDAY_BEGINS = datetime(2026, 11, 17, tzinfo=UTC)
FIRST_OF_MONTH = datetime(2026, 12, 1, tzinfo=UTC)

FILE = """\
fromTime=2026-11-15T12:00:00.000000Z
tknCreated=1
tknVerified=2
tknDeleted=3
tknReplaced=4
subCreated=5
subDeleted=6
ntfReceived=7
ntfReceivedAuth=8
ntfDelivered=9
ntfFailed=10
ntfReceivedOwn=smp1.own.test 2,smp2.own.test 3
ntfReceivedAuthOwn=smp1.own.test 1
ntfDeliveredOwn=
ntfFailedOwn=
ntfCronDelivered=11
ntfCronFailed=12
ntfVrfQueued=13
ntfVrfDelivered=14
ntfVrfFailed=15
ntfVrfInvalidTkn=16
activeTokens:
dayHashes=-5,7
weekHashes=-5,7
monthHashes=-5,7,9
activeSubs:
dayHashes=
weekHashes=3
monthHashes=3
"""


def restored(text: str = FILE) -> tuple[NtfCounters, NtfStatistics]:
    counters = NtfCounters()
    statistics = NtfStatistics(counters, since=FIRST_OF_MONTH)
    statistics.restore(text, SUNDAY)
    return counters, statistics


def test_the_file_has_the_reference_form_and_comes_back() -> None:
    counters, statistics = restored()
    assert "".join(f"{line}\n" for line in statistics.lines(SUNDAY)) == FILE
    assert counters.tokens_created == 1
    assert counters.notifications_verification_invalid_tkn == 16
    assert counters.own.received == {"smp1.own.test": 2, "smp2.own.test": 3}


def test_keys_that_older_files_lack_are_zero() -> None:
    optional = [key for key in KEYS if key.startswith(("ntfCron", "ntfVrf")) or key in OWN]
    optional += ["tknReplaced", "ntfReceivedAuth", "ntfFailed"]
    lines = [line for line in FILE.splitlines() if line.partition("=")[0] not in optional]
    counters, _ = restored("\n".join(lines))
    assert counters.tokens_created == 1
    assert counters.tokens_replaced == 0
    assert counters.own.received == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "fromTime is missing"),
        (FILE.replace("tknCreated=1\n", ""), "tknCreated is missing"),
        (FILE.replace("tknCreated=1", "tknCreated=one"), "tknCreated is not a number"),
        (FILE.replace("tknCreated=1", "tknCreated"), "line 2 is neither"),
        (FILE.replace("smp1.own.test 2", "smp1.own.test"), "ntfReceivedOwn is not a number"),
        (FILE.replace("2026-11-15T12", "never"), "never"),
        (FILE.replace("-5,7,9", "x"), "monthHashes is not a number"),
    ],
)
def test_a_broken_file_is_refused_and_changes_nothing(text: str, says: str) -> None:
    counters = NtfCounters()
    statistics = NtfStatistics(counters, since=SUNDAY)
    with pytest.raises(ValueError, match=says):
        statistics.restore(text, SUNDAY)
    assert not any(total.value for total in totals(counters))
    assert statistics.since == SUNDAY


def cells(line: str) -> dict[str, str]:
    values = line.split(",")
    assert len(values) == 22
    return dict(zip(DAILY_COLUMNS, values, strict=True))


def test_the_line_of_a_day_has_its_22_columns_and_begins_anew() -> None:
    counters, statistics = restored()
    first = statistics.end_day(MONDAY_BEGINS)
    assert first == "2026-11-15,1,2,3,5,6,7,9,2,2,,0,1,,4,10,11,12,13,14,15,16"
    counters.tokens_created += 3
    second = cells(statistics.end_day(TUESDAY_BEGINS))
    assert (second["fromTime"], second["tknCreated"], second["tknVerified"]) == ("2026-11-16", "3", "0")
    assert counters.tokens_created == 4  # metrics only grow


def test_weeks_are_told_on_mondays_and_months_on_the_first() -> None:
    counters = NtfCounters()
    statistics = NtfStatistics(counters, since=SUNDAY)
    for token in (b"a", b"b"):
        counters.active.notified(token, b"queue", SUNDAY.timestamp())
    monday = cells(statistics.end_day(MONDAY_BEGINS))
    assert [monday[f"{p}Tokens"] for p in ("day", "week", "month")] == ["2", "2", ""]
    assert [monday[f"{p}Subs"] for p in ("day", "week", "month")] == ["1", "1", ""]
    tuesday = cells(statistics.end_day(TUESDAY_BEGINS))
    assert [tuesday[f"{p}Tokens"] for p in ("day", "week", "month")] == ["0", "", ""]
    first = cells(statistics.end_day(FIRST_OF_MONTH))  # a Tuesday
    assert [first[f"{p}Tokens"] for p in ("day", "week", "month")] == ["0", "", "2"]


def test_what_came_without_a_token_is_never_reset() -> None:
    counters, statistics = restored()
    statistics.end_day(MONDAY_BEGINS)
    values = statistics.values()
    assert values["ntfReceivedAuth"] == 8
    assert values["ntfReceived"] == 0
    assert "ntfReceivedOwn=smp1.own.test 2,smp2.own.test 3" in list(statistics.lines(MONDAY_BEGINS))
    assert counters.notifications_received_auth == 8


def test_every_counter_of_the_reference_is_one_of_ours() -> None:
    ours = {total.name for total in totals(NtfCounters())}
    assert set(COUNTERS.values()) <= ours
    assert {*COUNTERS, *OWN} == set(KEYS)
