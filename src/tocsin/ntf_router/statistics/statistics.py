"""The statistics of an NTF router in the reference's terms: the backup file, the line of a day, the control port.

file = "fromTime=" time, then `key=value` in the order of `KEYS`, then the sections `activeTokens:` and `activeSubs:`
       (`NtfServerStatsData` in Notifications/Server/Stats.hs). Values of own servers are `host count` joined by commas.

The reference reads its keys in a fixed order. Our reading does not depend on the order, and unknown keys are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.operate.statistics_values import (
    ended_periods,
    hash_lines,
    parse_hashes,
    parse_number,
    parse_time,
    time_text,
)

COUNTERS: Final[dict[str, str]] = {
    "tknCreated": "tokens_created",
    "tknVerified": "tokens_verified",
    "tknDeleted": "tokens_deleted",
    "tknReplaced": "tokens_replaced",
    "subCreated": "subscriptions_created",
    "subDeleted": "subscriptions_deleted",
    "ntfReceived": "notifications_received",
    "ntfReceivedAuth": "notifications_received_auth",
    "ntfDelivered": "notifications_delivered",
    "ntfFailed": "notifications_failed",
    "ntfCronDelivered": "notifications_periodic_delivered",
    "ntfCronFailed": "notifications_periodic_failed",
    "ntfVrfQueued": "notifications_verification_queued",
    "ntfVrfDelivered": "notifications_verification_delivered",
    "ntfVrfFailed": "notifications_verification_failed",
    "ntfVrfInvalidTkn": "notifications_verification_invalid_tkn",
}
OWN: Final[dict[str, str]] = {
    "ntfReceivedOwn": "received",
    "ntfReceivedAuthOwn": "received_auth",
    "ntfDeliveredOwn": "delivered",
    "ntfFailedOwn": "failed",
}
KEYS: Final = (
    *("tknCreated", "tknVerified", "tknDeleted", "tknReplaced", "subCreated", "subDeleted"),
    *("ntfReceived", "ntfReceivedAuth", "ntfDelivered", "ntfFailed"),
    *OWN,
    *("ntfCronDelivered", "ntfCronFailed"),
    *("ntfVrfQueued", "ntfVrfDelivered", "ntfVrfFailed", "ntfVrfInvalidTkn"),
)
_NEEDED: Final = (
    *("fromTime", "tknCreated", "tknVerified", "tknDeleted", "subCreated", "subDeleted"),
    *("ntfReceived", "ntfDelivered"),
)
_NEVER_RESET: Final = "ntfReceivedAuth"
_TOKENS: Final = "activeTokens"
_SUBSCRIPTIONS: Final = "activeSubs"

DAILY_COLUMNS: Final = (
    *("fromTime", "tknCreated", "tknVerified", "tknDeleted", "subCreated", "subDeleted"),
    *("ntfReceived", "ntfDelivered"),
    *("dayTokens", "weekTokens", "monthTokens", "daySubs", "weekSubs", "monthSubs"),
    *("tknReplaced", "ntfFailed", "ntfCronDelivered", "ntfCronFailed"),
    *("ntfVrfQueued", "ntfVrfDelivered", "ntfVrfFailed", "ntfVrfInvalidTkn"),
)
"""Columns of `ntf-server-stats.daily.log`, a CSV file without headings."""


class NtfStatistics:
    """Counts since the last daily line, or since the statistics file began.

    The counters themselves only grow, as Prometheus expects.
    """

    def __init__(self, counters: NtfCounters, *, since: datetime) -> None:
        self._counters: Final = counters
        self._begun: dict[str, int] = {}
        self.since = since

    def restore(self, text: str, written: datetime) -> None:
        """Continue from a file that was written at that time. Call it before anything is counted.

        Raises ValueError, and changes nothing, if the text is malformed.
        """
        entries = _entries(text)
        for key in _NEEDED:
            if key not in entries:
                raise ValueError(f"{key} is missing")
        since = parse_time(entries["fromTime"])
        values = {key: parse_number(key, entries.get(key, "0")) for key in COUNTERS}
        own = {key: _parse_by_host(key, entries.get(key, "")) for key in OWN}
        tokens, subscriptions = parse_hashes(entries, _TOKENS), parse_hashes(entries, _SUBSCRIPTIONS)
        self.since = since
        for key, value in values.items():
            setattr(self._counters, COUNTERS[key], value)
        for key, by_host in own.items():
            setattr(self._counters.own, OWN[key], by_host)
        day = written.astimezone(UTC).date()
        self._counters.active.tokens.restore(tokens, day)
        self._counters.active.subscriptions.restore(subscriptions, day)

    def lines(self, now: datetime) -> Iterator[str]:
        """The lines of the file."""
        values, today, active = self.values(), now.astimezone(UTC).date(), self._counters.active
        yield f"fromTime={time_text(self.since)}"
        for key in KEYS:
            yield f"{key}={_by_host_text(self._own(key)) if key in OWN else values[key]}"
        yield from hash_lines(_TOKENS, active.tokens.of(today))
        yield from hash_lines(_SUBSCRIPTIONS, active.subscriptions.of(today))

    def end_day(self, now: datetime) -> str:
        """Return the line of the period that just ended, and restart counting."""
        values: dict[str, object] = dict(self.values())
        values["fromTime"] = self.since.astimezone(UTC).date().isoformat()
        ended, begins = (now - timedelta(microseconds=1)).astimezone(UTC).date(), now.astimezone(UTC).date()
        for name, used in (
            ("Tokens", self._counters.active.tokens),
            ("Subs", self._counters.active.subscriptions),
        ):
            names = (f"day{name}", f"week{name}", f"month{name}")
            values |= zip(names, ended_periods(used.of(ended).counts, begins), strict=True)
        self._begun, self.since = self._totals(), now
        return ",".join(str(values[column]) for column in DAILY_COLUMNS)

    def values(self) -> dict[str, int]:
        """Counts since `since`, by the reference's names."""
        return {
            key: total if key == _NEVER_RESET else total - self._begun.get(key, 0)
            for key, total in self._totals().items()
        }

    def _totals(self) -> dict[str, int]:
        return {key: getattr(self._counters, name) for key, name in COUNTERS.items()}

    def _own(self, key: str) -> Counter[str]:
        by_host: Counter[str] = getattr(self._counters.own, OWN[key])
        return by_host


def _entries(text: str) -> dict[str, str]:
    entries: dict[str, str] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        key, sign, value = line.partition("=")
        if not sign and line.endswith(":"):
            section = line[:-1] + "."
        elif not sign:
            raise ValueError(f"line {number} is neither `key=value` nor a section")
        else:
            entries[section + key] = value
    return entries


def _by_host_text(by_host: Counter[str]) -> str:
    return ",".join(f"{host} {count}" for host, count in sorted(by_host.items()))


def _parse_by_host(key: str, text: str) -> Counter[str]:
    by_host: Counter[str] = Counter()
    for pair in text.split(",") if text else ():
        host, _, count = pair.partition(" ")
        by_host[host] += parse_number(key, count)
    return by_host
