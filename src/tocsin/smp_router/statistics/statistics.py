"""A router's counters in the reference's terms: for the statistics file and for the line of a day."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from tocsin.operate.statistics_files import KeptStatistics, statistics_path
from tocsin.operate.statistics_values import ended_periods
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.smp_router.statistics.statistics_lines import (
    PROXY_KEYS,
    PROXY_SECTIONS,
    StatisticsRecord,
    parse_statistics,
)
from tocsin.smp_router.store.interface import SmpStore

COUNTERS: Final[dict[str, str]] = {
    "qCreated": "queues_created",
    "qSecured": "queues_secured",
    "qDeletedAll": "queues_deleted",
    "qDeletedSecured": "queues_deleted_secured",
    "qBlocked": "queues_blocked",
    "qSub": "subscriptions",
    "qSubEnd": "subscriptions_taken_over",
    "ntfCreated": "notifiers_created",
    "ntfDeleted": "notifiers_deleted",
    "ntfSub": "notifier_subscriptions",
    "msgSent": "messages_sent",
    "msgSentQuota": "messages_over_quota",
    "msgSentLarge": "messages_too_large",
    "msgRecv": "messages_received",
    "msgGet": "messages_fetched",
    "msgExpired": "messages_expired",
    "msgSentNtf": "messages_with_notification",
    "msgRecvNtf": "messages_received_with_notification",
    "msgNtfs": "notifications_confirmed",
    "msgNtfExpired": "notifications_expired",
    "pRelays.requests": "proxy_requests",
    "pRelays.errorsConnect": "proxy_connect_errors",
    "pRelaysOwn.requests": "proxy_requests_own",
    "pMsgFwds.requests": "proxy_forwards",
    "pMsgFwdsOwn.requests": "proxy_forwards_own",
    "pMsgFwds.errorsOther": "proxy_forward_errors",
    "pMsgFwdsRecv": "relayed_commands",
    "rcvServices.subCount": "service_subscriptions",
    "ntfServices.subCount": "notifier_service_subscriptions",
}
"""The counter of each key. Keys without a counter keep the value from the file."""

DAILY_COLUMNS: Final = (
    *("fromTime", "qCreated", "qSecured", "qDeletedAll", "msgSent", "msgRecv"),
    *("dayMsgQueues", "weekMsgQueues", "monthMsgQueues", "msgSentNtf", "msgRecvNtf"),
    *("dayCountNtf", "weekCountNtf", "monthCountNtf", "qCount", "msgCount", "msgExpired"),
    *("qDeletedNew", "qDeletedSecured"),
    *(f"{section}.{key}" for section in PROXY_SECTIONS for key in PROXY_KEYS),
    *("pMsgFwdsRecv", "qSub", "qSubAuth", "qSubDuplicate", "qSubProhibited"),
    *("msgSentAuth", "msgSentQuota", "msgSentLarge", "msgNtfs", "msgNtfNoSub", "msgNtfLost", "qSubNoMsg"),
    *("msgRecvGet", "msgGet", "msgGetNoMsg", "msgGetAuth", "msgGetDuplicate", "msgGetProhibited"),
    *("psSubDaily", "psSubWeekly", "psSubMonthly", "qCount", "ntfCreated", "ntfDeleted", "ntfSub"),
    *("ntfSubAuth", "ntfSubDuplicate", "ntfCount", "qDeletedAllB", "qSubAllB", "qSubEnd", "qSubEndB"),
    *("ntfDeletedB", "ntfSubB", "msgNtfsB", "msgNtfExpired"),
)
"""Columns of `smp-server-stats.daily.log`, a CSV file without headings, as the reference's guide lists them."""


class SmpStoreCounts(NamedTuple):
    """The size of the store now."""

    queues: int
    messages: int
    notifiers: int


class SmpStatistics:
    """Counts since the last daily line, or since the statistics file began."""

    def __init__(self, counters: SmpCounters, *, since: datetime) -> None:
        self._counters: Final = counters
        self._carried: dict[str, int] = {}
        self._begun: dict[str, int] = {}
        self._since = since

    def restore(self, record: StatisticsRecord, written: datetime) -> None:
        """Continue from a record that was written at that time. Call it before anything is counted."""
        self._since = record.since
        for key, value in record.values.items():
            if key in COUNTERS:
                setattr(self._counters, COUNTERS[key], value)
            else:
                self._carried[key] = value
        self._counters.active.messages.restore(record.active, written.astimezone(UTC).date())
        self._counters.active.notifications.restore(
            record.active_notifications, written.astimezone(UTC).date()
        )

    def record(self, store: SmpStoreCounts, now: datetime) -> StatisticsRecord:
        today, active = now.astimezone(UTC).date(), self._counters.active
        values = self._values(store)
        return StatisticsRecord(
            self._since, values, active.messages.of(today), active.notifications.of(today)
        )

    def end_day(self, store: SmpStoreCounts, now: datetime) -> str:
        """Return the line of the day that just ended, and restart counting."""
        midnight = now.astimezone(UTC).date()
        yesterday, active = midnight - timedelta(days=1), self._counters.active
        values: dict[str, object] = dict(self._values(store))
        values |= {"fromTime": self._since.astimezone(UTC).date().isoformat(), "msgCount": store.messages}
        for names, used in (
            (("dayMsgQueues", "weekMsgQueues", "monthMsgQueues"), active.messages),
            (("dayCountNtf", "weekCountNtf", "monthCountNtf"), active.notifications),
        ):
            values |= zip(names, ended_periods(used.of(yesterday).counts, midnight), strict=True)
        self._begun, self._since = self._totals(), now
        return ",".join(str(values.get(column, 0)) for column in DAILY_COLUMNS)

    def _values(self, store: SmpStoreCounts) -> dict[str, int]:
        values = {key: total - self._begun.get(key, 0) for key, total in self._totals().items()}
        return values | {"qCount": store.queues, "ntfCount": store.notifiers}

    def _totals(self) -> dict[str, int]:
        totals = self._carried | {key: getattr(self._counters, name) for key, name in COUNTERS.items()}
        totals["qDeletedNew"] = totals["qDeletedAll"] - totals["qDeletedSecured"]
        for section in ("pRelays", "pRelaysOwn", "pMsgFwds"):
            failed = sum(totals.get(f"{section}.{key}", 0) for key in PROXY_KEYS if key.startswith("errors"))
            totals[f"{section}.successes"] = totals[f"{section}.requests"] - failed
        return totals


DAILY_LOG: Final = "smp-server-stats.daily.log"


class StatisticsFiles(KeptStatistics):
    """The statistics file and the daily lines of one router."""

    def __init__(self, settings: SmpSettings, counters: SmpCounters, store: SmpStore) -> None:
        super().__init__(
            _StatisticsWithStore(counters, store),
            statistics_path(settings.store, settings.statistics_file),
            settings.store / DAILY_LOG if settings.log_stats and settings.store else None,
        )


class _StatisticsWithStore:
    def __init__(self, counters: SmpCounters, store: SmpStore) -> None:
        self._statistics: Final = SmpStatistics(counters, since=datetime.now(UTC))
        self._store: Final = store

    def restore(self, text: str, written: datetime) -> None:
        self._statistics.restore(parse_statistics(text), written)

    def lines(self, now: datetime) -> Iterator[str]:
        return self._statistics.record(self._counts(), now).lines()

    def end_day(self, now: datetime) -> str:
        return self._statistics.end_day(self._counts(), now)

    def _counts(self) -> SmpStoreCounts:
        store = self._store
        messages = sum(store.message_count(queue) for queue in store.queues_with_messages())
        return SmpStoreCounts(store.queue_count(), messages, store.notifier_count())
