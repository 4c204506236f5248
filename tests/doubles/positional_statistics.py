"""A reader of the statistics file that knows only its specification, and reads it by position as the reference does.

The lines and their order are those of `v7.md` Appendix B. A missing line counts as zero, except for the required ones.
A line in another place, or one that is not in the list, is an error: the reference then refuses to start.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

LINES: Final = (
    *("qCreated", "qSecured", "qDeletedAll", "qDeletedNew", "qDeletedSecured", "qDeletedAllB", "qBlocked"),
    *("qCount", "qSub", "qSubAllB", "qSubAuth", "qSubDuplicate", "qSubProhibited", "qSubEnd", "qSubEndB"),
    *("ntfCreated", "ntfNewCreated", "ntfDeleted", "ntfDeletedB", "ntfSub", "ntfSubB", "ntfSubAuth"),
    *("ntfSubDuplicate", "msgSent", "msgSentAuth", "msgSentQuota", "msgSentLarge", "msgSentBlock"),
    *("msgRecv", "msgRecvGet", "msgGet", "msgGetNoMsg", "msgGetAuth", "msgGetDuplicate"),
    *("msgGetProhibited", "msgExpired", "msgSentNtf", "msgRecvNtf", "msgNtfs", "msgNtfsB"),
    *("msgNtfNoSub", "msgNtfLost", "msgNtfExpired"),
)
REQUIRED: Final = frozenset({"qCreated", "qSecured", "qDeletedAll", "msgSent", "msgRecv"})
PERIODS: Final = ("dayHashes", "weekHashes", "monthHashes")
PROXY: Final = ("requests", "successes", "errorsConnect", "errorsCompat", "errorsOther")
SERVICES: Final = (
    *("assocNew", "assocDuplicate", "assocUpdatedt", "assocRemoved"),
    *("subCount", "subDuplicate", "subQueues", "subEnd"),
)
NAMES: Final = ("reqs", "succ", "notFound", "resolverErrs", "disabled")


class PositionalReader:
    """Reads the lines of a file from the first to the last."""

    def __init__(self, lines: Sequence[str], *, knows_names: bool) -> None:
        """`knows_names`: as 7.0, which has one more section, and may miss it. 6.5.5 refuses it."""
        self._lines: Final = lines
        self._at = 0
        self.values: Final[dict[str, int]] = {}
        self._required("fromTime")
        for name in LINES:
            self._number(name, name, required=name in REQUIRED)
        for heading in ("activeQueues:", "activeQueuesNtf:"):
            self._heading(heading)
            for period in PERIODS:
                hashes = self._required(period)
                assert all(each.lstrip("-").isdecimal() for each in hashes.split(",") if hashes), hashes
        for section in ("pRelays", "pRelaysOwn", "pMsgFwds", "pMsgFwdsOwn"):
            self._section(section, PROXY)
        self._number("pMsgFwdsRecv", "pMsgFwdsRecv", required=False)
        for section in ("rcvServices", "ntfServices"):
            self._section(section, SERVICES)
        if knows_names and self._at < len(self._lines):
            self._section("rslvStats", NAMES)
        assert self._at == len(self._lines), f"unexpected line: {self._lines[self._at]}"

    def _section(self, section: str, names: Sequence[str]) -> None:
        self._heading(f"{section}:")
        for name in names:
            self._number(f"{section}.{name}", name, required=True)

    def _heading(self, heading: str) -> None:
        assert self._next() == heading, f"{heading} expected, not {self._next()}"
        self._at += 1

    def _number(self, key: str, name: str, *, required: bool) -> None:
        if required or self._next().startswith(f"{name}="):
            self.values[key] = int(self._required(name))

    def _required(self, name: str) -> str:
        found, sign, value = self._next().partition("=")
        assert sign, self._next()
        assert found == name, f"{name} expected, not {found}"
        self._at += 1
        if name == "fromTime":
            datetime.fromisoformat(value)
        return value

    def _next(self) -> str:
        assert self._at < len(self._lines), "the file ends too early"
        return self._lines[self._at]
