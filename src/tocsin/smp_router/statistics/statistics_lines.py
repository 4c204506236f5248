"""The statistics file of an SMP router, `smp-server-stats.log`, as the reference has it (v7.md 5.3, Appendix B).

file    = "fromTime=" time, then lines of `key=number`, then sections, and one more `key=number` among them
section = name ":", then lines of `key=value`; the values of the active queues are numbers separated by commas

The reference reads by position: 95 lines, and 7.0 one more section, `rslvStats:`, which it does not need. So the file
has that section only where 6.5.5 is not expected to read it (`names` of the record). Our own reading does not depend
on the order, and unknown keys are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tocsin.operate.active_queues import PeriodHashes
from tocsin.operate.statistics_values import (
    hash_lines,
    parse_hashes,
    parse_number,
    parse_time,
    time_text,
)

KEYS: Final = (
    *("qCreated", "qSecured", "qDeletedAll", "qDeletedNew", "qDeletedSecured", "qDeletedAllB"),
    *("qBlocked", "qCount"),
    *("qSub", "qSubAllB", "qSubAuth", "qSubDuplicate", "qSubProhibited", "qSubEnd", "qSubEndB"),
    *("ntfCreated", "ntfNewCreated", "ntfDeleted", "ntfDeletedB"),
    *("ntfSub", "ntfSubB", "ntfSubAuth", "ntfSubDuplicate"),
    *("msgSent", "msgSentAuth", "msgSentQuota", "msgSentLarge", "msgSentBlock", "msgRecv", "msgRecvGet"),
    *("msgGet", "msgGetNoMsg", "msgGetAuth", "msgGetDuplicate", "msgGetProhibited", "msgExpired"),
    *("msgSentNtf", "msgRecvNtf"),
    *("msgNtfs", "msgNtfsB", "msgNtfNoSub", "msgNtfLost", "msgNtfExpired"),
)
LAST_KEY: Final = "pMsgFwdsRecv"
"""Stands between the sections of the proxy and those of services."""

PROXY_SECTIONS: Final = ("pRelays", "pRelaysOwn", "pMsgFwds", "pMsgFwdsOwn")
PROXY_KEYS: Final = ("requests", "successes", "errorsConnect", "errorsCompat", "errorsOther")
SERVICE_SECTIONS: Final = ("rcvServices", "ntfServices")
SERVICE_KEYS: Final = (
    *("assocNew", "assocDuplicate", "assocUpdatedt", "assocRemoved"),  # the t is the reference's
    *("subCount", "subDuplicate", "subQueues", "subEnd"),
)
NAMES_SECTION: Final = "rslvStats"
NAMES_KEYS: Final = ("reqs", "succ", "notFound", "resolverErrs", "disabled")
_ACTIVE: Final = ("activeQueues", "activeQueuesNtf")
_OLD_KEYS: Final = {"qDeleted": "qDeletedAll"}


@dataclass(frozen=True, slots=True)
class StatisticsRecord:
    """The contents of the file. Keys inside sections are `section.key`."""

    since: datetime
    values: Mapping[str, int]
    active: PeriodHashes = field(default_factory=PeriodHashes)
    active_notifications: PeriodHashes = field(default_factory=PeriodHashes)
    names: bool = False
    """Whether there is a section of names, which 6.5.5 cannot read."""

    def lines(self) -> Iterator[str]:
        yield f"fromTime={time_text(self.since)}"
        yield from (f"{key}={self.values.get(key, 0)}" for key in KEYS)
        for section, hashes in zip(_ACTIVE, (self.active, self.active_notifications), strict=True):
            yield from hash_lines(section, hashes)
        yield from self._sections(PROXY_SECTIONS, PROXY_KEYS)
        yield f"{LAST_KEY}={self.values.get(LAST_KEY, 0)}"
        yield from self._sections(SERVICE_SECTIONS, SERVICE_KEYS)
        if self.names:
            yield from self._sections((NAMES_SECTION,), NAMES_KEYS)

    def _sections(self, sections: tuple[str, ...], keys: tuple[str, ...]) -> Iterator[str]:
        for section in sections:
            yield f"{section}:"
            yield from (f"{key}={self.values.get(f'{section}.{key}', 0)}" for key in keys)


def parse_statistics(text: str) -> StatisticsRecord:
    """Parse a statistics file. Raises ValueError that names the bad line."""
    entries: dict[str, str] = {}
    section, names = "", False
    for number, line in enumerate(text.splitlines(), start=1):
        key, sign, value = line.partition("=")
        if not sign and line.endswith(":"):
            section = line[:-1]
            names |= section == NAMES_SECTION
        elif not sign:
            raise ValueError(f"line {number} is neither `key=value` nor a section")
        else:
            inside = section and key != LAST_KEY
            entries[f"{section}.{key}" if inside else _OLD_KEYS.get(key, key)] = value
    if "fromTime" not in entries:
        raise ValueError("fromTime is missing")
    values = {key: parse_number(key, entries[key]) for key in _all_keys() if key in entries}
    active, notifications = (parse_hashes(entries, section) for section in _ACTIVE)
    return StatisticsRecord(parse_time(entries["fromTime"]), values, active, notifications, names)


def _all_keys() -> Iterator[str]:
    yield from (*KEYS, LAST_KEY)
    yield from (f"{section}.{key}" for section in PROXY_SECTIONS for key in PROXY_KEYS)
    yield from (f"{section}.{key}" for section in SERVICE_SECTIONS for key in SERVICE_KEYS)
    yield from (f"{NAMES_SECTION}.{key}" for key in NAMES_KEYS)
