"""A router's counters in the reference's terms: for the statistics file and for the line of a day."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Final, NamedTuple

from tocsin.operate.statistics_files import KeptStatistics, statistics_path
from tocsin.operate.statistics_values import ended_periods
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.smp_router.statistics.statistics_lines import (
    NAMES_KEYS,
    NAMES_SECTION,
    PROXY_KEYS,
    PROXY_SECTIONS,
    SERVICE_SECTIONS,
    StatisticsRecord,
    parse_statistics,
)
from tocsin.smp_router.store.interface import SmpStore

COUNTERS: Final[dict[str, str]] = {
    "qCreated": "queues_created",
    "qSecured": "queues_secured",
    "qDeletedAll": "queues_deleted",
    "qDeletedNew": "queues_deleted_new",
    "qDeletedSecured": "queues_deleted_secured",
    "qDeletedAllB": "deletion_blocks",
    "qBlocked": "queues_blocked",
    "qSub": "subscriptions",
    "qSubAllB": "subscription_blocks",
    "qSubAuth": "subscriptions_refused",
    "qSubDuplicate": "subscriptions_repeated",
    "qSubProhibited": "subscriptions_prohibited",
    "qSubEnd": "subscriptions_taken_over",
    "qSubEndB": "end_blocks",
    "ntfNewCreated": "notifiers_created_by_new",
    "ntfDeleted": "notifiers_deleted",
    "ntfDeletedB": "notifier_deletion_blocks",
    "ntfSub": "notifier_subscriptions",
    "ntfSubB": "notifier_subscription_blocks",
    "ntfSubAuth": "notifier_subscriptions_refused",
    "ntfSubDuplicate": "notifier_subscriptions_repeated",
    "msgSent": "messages_sent",
    "msgSentAuth": "messages_refused",
    "msgSentQuota": "messages_over_quota",
    "msgSentLarge": "messages_too_large",
    "msgSentBlock": "messages_to_blocked_queues",
    "msgRecv": "messages_received",
    "msgRecvGet": "messages_received_by_get",
    "msgGet": "messages_fetched",
    "msgGetNoMsg": "gets_without_message",
    "msgGetAuth": "gets_refused",
    "msgGetDuplicate": "gets_repeated",
    "msgGetProhibited": "gets_prohibited",
    "msgExpired": "messages_expired",
    "msgSentNtf": "messages_with_notification",
    "msgRecvNtf": "messages_received_with_notification",
    "msgNtfs": "notifications_confirmed",
    "msgNtfsB": "notification_blocks",
    "msgNtfNoSub": "notifications_without_subscriber",
    "msgNtfLost": "notifications_over_quota",
    "msgNtfExpired": "notifications_expired",
    "pMsgFwdsRecv": "relayed_commands",
    "rcvServices.subCount": "service_subscriptions",
    "ntfServices.subCount": "notifier_service_subscriptions",
    "rslvStats.reqs": "names.requests",
    "rslvStats.succ": "names.resolved",
    "rslvStats.notFound": "names.not_found",
    "rslvStats.resolverErrs": "names.resolver_errors",
    "rslvStats.disabled": "names.disabled",
    **{
        f"{section}{own}.{key}": f"{name}{suffix}"
        for own, suffix in (("", ""), ("Own", "_own"))
        for section, names in (
            (
                "pRelays",
                (
                    *("proxy_requests", "proxy_sessions"),
                    *("proxy_connect_errors", "proxy_version_errors", "proxy_other_errors"),
                ),
            ),
            (
                "pMsgFwds",
                (
                    *("proxy_forwards", "proxy_forwards_answered", "proxy_forward_connect_errors"),
                    *("proxy_forward_version_errors", "proxy_forward_errors"),
                ),
            ),
        )
        for key, name in zip(PROXY_KEYS, names, strict=True)
    },
    **{
        f"{section}.{key}": f"{services}.{name}"
        for section, services in zip(SERVICE_SECTIONS, ("rcv_services", "ntf_services"), strict=True)
        for key, name in (
            ("assocNew", "associations"),
            ("assocDuplicate", "associations_repeated"),
            ("assocUpdatedt", "associations_moved"),
            ("assocRemoved", "associations_removed"),
            ("subDuplicate", "repeated"),
            ("subQueues", "queues"),
            ("subEnd", "ended"),
        )
    },
}
"""The counter of each key but two: `qCount` is what the store has, and `ntfCreated` counts NKEY only."""

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
NAME_COLUMNS: Final = tuple(f"{NAMES_SECTION}.{key}" for key in NAMES_KEYS)
"""Columns that 7.0 has at the end (v7.md 5.3). They are written where the file has the section of names."""


class SmpStoreCounts(NamedTuple):
    """The size of the store now."""

    queues: int
    messages: int
    notifiers: int


class SmpStatistics:
    """Counts since the last daily line, or since the statistics file began."""

    def __init__(self, counters: SmpCounters, *, since: datetime, names: bool = False) -> None:
        """`names`: write the section of names, because names are resolved here."""
        self._counters: Final = counters
        self._begun: dict[str, int] = {}
        self._since = since
        self._names = names

    def restore(self, record: StatisticsRecord, written: datetime) -> None:
        """Continue from a record that was written at that time. Call it before anything is counted."""
        self._since = record.since
        self._names |= record.names  # the program that wrote it can read it
        for key, value in record.values.items():
            if key in COUNTERS:
                self._set(COUNTERS[key], value)
        created = (record.values.get(key, 0) for key in ("ntfCreated", "ntfNewCreated"))
        self._counters.notifiers_created = sum(created)
        self._counters.active.messages.restore(record.active, written.astimezone(UTC).date())
        self._counters.active.notifications.restore(
            record.active_notifications, written.astimezone(UTC).date()
        )

    def _set(self, name: str, value: int) -> None:
        part, _, last = name.rpartition(".")
        setattr(getattr(self._counters, part) if part else self._counters, last, value)

    def record(self, store: SmpStoreCounts, now: datetime) -> StatisticsRecord:
        today, active = now.astimezone(UTC).date(), self._counters.active
        values = self._values() | {"qCount": store.queues}
        return StatisticsRecord(
            self._since, values, active.messages.of(today), active.notifications.of(today), self._names
        )

    def end_day(self, store: SmpStoreCounts, now: datetime) -> str:
        """Return the line of the day that just ended, and restart counting."""
        midnight = now.astimezone(UTC).date()
        yesterday, active = midnight - timedelta(days=1), self._counters.active
        values: dict[str, object] = dict(self._values())
        values |= {"qCount": store.queues, "ntfCount": store.notifiers, "msgCount": store.messages}
        values["fromTime"] = self._since.astimezone(UTC).date().isoformat()
        for names, used in (
            (("dayMsgQueues", "weekMsgQueues", "monthMsgQueues"), active.messages),
            (("dayCountNtf", "weekCountNtf", "monthCountNtf"), active.notifications),
        ):
            values |= zip(names, ended_periods(used.of(yesterday).counts, midnight), strict=True)
        self._begun, self._since = self._totals(), now
        columns = (*DAILY_COLUMNS, *NAME_COLUMNS) if self._names else DAILY_COLUMNS
        return ",".join(str(values.get(column, 0)) for column in columns)

    def _values(self) -> dict[str, int]:
        return {key: total - self._begun.get(key, 0) for key, total in self._totals().items()}

    def _totals(self) -> dict[str, int]:
        totals: dict[str, int] = {key: attrgetter(name)(self._counters) for key, name in COUNTERS.items()}
        totals["ntfCreated"] = self._counters.notifiers_created - self._counters.notifiers_created_by_new
        return totals


DAILY_LOG: Final = "smp-server-stats.daily.log"


class StatisticsFiles(KeptStatistics):
    """The statistics file and the daily lines of one router."""

    def __init__(self, settings: SmpSettings, counters: SmpCounters, store: SmpStore) -> None:
        super().__init__(
            _StatisticsWithStore(counters, store, names=settings.names.enabled),
            statistics_path(settings.store, settings.statistics_file),
            settings.store / DAILY_LOG if settings.log_stats and settings.store else None,
        )


class _StatisticsWithStore:
    def __init__(self, counters: SmpCounters, store: SmpStore, *, names: bool) -> None:
        self._statistics: Final = SmpStatistics(counters, since=datetime.now(UTC), names=names)
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
