"""The counters of an NTF router (ntf.md 4.12), and the durations of the stages of a push.

Their fields give the names and help texts of the metrics.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from tocsin.ntf_router.store.records import RowLimit
from tocsin.operate.active_queues import UsedQueues, id_number
from tocsin.operate.metrics import counted

BOUNDS_SECONDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    3600.0,
)


class Histogram:
    """Counts by upper bound, as Prometheus expects them."""

    __slots__ = ("about", "counts", "name", "sum")

    def __init__(self, name: str, about: str) -> None:
        self.name = name
        self.about = about
        self.counts = [0] * (len(BOUNDS_SECONDS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(BOUNDS_SECONDS, seconds)] += times
        self.sum += seconds * times


class NtfLatencies:
    def __init__(self) -> None:
        self.received_to_accepted = Histogram(
            "simplex_ntf_received_to_accepted_seconds",
            "From an NMSG's arrival to the provider's acceptance of the push that carries it.",
        )
        self.stored = Histogram(
            "simplex_ntf_store_seconds", "From an NMSG's arrival until it is safe in the store."
        )
        self.provider_answer = Histogram(
            "simplex_ntf_provider_seconds", "From sending a message push to the provider's answer."
        )

    def all(self) -> tuple[Histogram, ...]:
        return (self.received_to_accepted, self.stored, self.provider_answer)


_EPOCH: Final = date(1970, 1, 1).toordinal()
MOST_SEEN: Final = 200_000


@dataclass(slots=True)
class OwnServerCounters:
    """Counts by host for SMP routers in the operator's domains."""

    domains: tuple[str, ...] = ()
    received: Counter[str] = field(default_factory=Counter)
    received_auth: Counter[str] = field(default_factory=Counter)
    delivered: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)

    def host_of(self, hosts: Sequence[str]) -> str | None:
        """The router's first host if it is in the operator's domains."""
        first = hosts[0]
        for domain in self.domains:
            if first == domain or first.endswith("." + domain.removeprefix(".")):
                return first
        return None

    def count_push(self, counts: Counter[str], routers: Sequence[Sequence[str]]) -> None:
        """Count one push with notifications from these routers, given by their hosts."""
        if self.domains:
            counts.update({host for hosts in routers if (host := self.host_of(hosts)) is not None})


@dataclass(slots=True)
class ActiveTokens:
    """Tokens and subscriptions that had notifications, as hashes."""

    tokens: UsedQueues = field(default_factory=UsedQueues)
    subscriptions: UsedQueues = field(default_factory=UsedQueues)
    _seen: set[bytes] = field(default_factory=set, repr=False)
    """Ids already counted today: hashing each again would cost more than all other counters."""
    _day: int = 0

    def notified(self, token_id: bytes, notifier_id: bytes, now: float) -> None:
        """`now` in seconds since 1970."""
        day = _EPOCH + int(now) // 86_400
        if day != self._day or len(self._seen) > MOST_SEEN:
            self._day = day
            self._seen.clear()
        if token_id not in self._seen:
            self._seen.add(token_id)
            self.tokens.used(id_number(token_id), day)
        if notifier_id not in self._seen:
            self._seen.add(notifier_id)
            self.subscriptions.used(id_number(notifier_id), day)


@dataclass(slots=True)
class NtfCounters:
    """Totals that only grow. One object for a router, changed in its event loop only."""

    connections: int = counted("Connections whose handshakes succeeded.")
    connections_refused: int = counted("Connections whose NTF handshake failed or took too long.")
    connections_inactive: int = counted("Connections closed because they were silent for too long.")
    commands: int = counted("Commands received, of any kind.")
    command_errors: int = counted("Commands refused before execution because of syntax or credentials.")
    auth_failures: int = counted("Commands answered with AUTH.")
    store_errors: int = counted("Commands that failed because the store did.")
    events_failed: int = counted("Delivery events lost because making them failed.")

    tokens_created: int = counted("Device tokens registered by TNEW.")
    tokens_verified: int = counted("Device tokens verified by TVFY.")
    tokens_deleted: int = counted("Device tokens deleted by TDEL.")
    tokens_replaced: int = counted("Device tokens replaced by TRPL.")
    registrations_refused: int = counted(
        "TNEW and TRPL refused with QUOTA: too many of one connection, or of one device token."
    )
    tokens_over_limit: int = counted("TNEW refused with QUOTA because of max_tokens.")
    tokens_never_verified: int = counted(
        "Device tokens removed because nobody verified them for a day, and max_tokens was near."
    )
    tokens_invalid: int = counted("Device tokens that their provider declared invalid.")
    subscriptions_created: int = counted("Subscriptions made by SNEW.")
    subscriptions_refused: int = counted(
        "SNEW refused with QUOTA: the token named too many SMP routers, or too many that never answered."
    )
    subscriptions_over_limit: int = counted(
        "SNEW and packets of direct notifications refused because of max_subscriptions."
    )
    subscriptions_over_token_limit: int = counted(
        "SNEW and packets of direct notifications refused because of max_subscriptions_per_token."
    )
    subscriptions_deleted: int = counted("Subscriptions deleted by SDEL.")

    notifications_received: int = counted("NMSG stored for an active token.")
    notifications_received_auth: int = counted("NMSG for a queue without an active token.")
    notifications_repeated: int = counted("NMSG that an SMP router sent a second time.")
    notifications_malformed: int = counted("NMSG that no push can carry.")
    notifications_superseded: int = counted(
        "Notifications replaced by a newer one of their queue before a push."
    )
    notifications_expired: int = counted("Notifications that no push carried in time.")
    notifications_delivered: int = counted("Message pushes that the provider accepted.")
    notifications_failed: int = counted("Message pushes that failed for good.")
    notifications_periodic_delivered: int = counted("Periodic pushes that the provider accepted.")
    notifications_periodic_failed: int = counted("Periodic pushes that failed for good.")
    notifications_verification_queued: int = counted("Verification pushes asked for.")
    notifications_verification_delivered: int = counted("Verification pushes that the provider accepted.")
    notifications_verification_failed: int = counted("Verification pushes that failed for good.")
    notifications_verification_invalid_tkn: int = counted(
        "Verification pushes to a device token that the provider declared invalid."
    )
    notifications_verification_merged: int = counted(
        "Verification pushes not sent because one to the same device token carries the code, or a newer one."
    )
    pushes_retried: int = counted("Pushes sent again after a failure that may pass.")
    pushes_shed: int = counted("Verification and periodic pushes dropped because too many waited.")

    queues_subscribed: int = counted("NSUB accepted by SMP routers.")
    queues_refused: int = counted("NSUB refused by SMP routers.")
    service_drifts: int = counted("NSUBS answered with another number or hash of queues than expected.")
    services_taken_over: int = counted("ENDS: another connection took our service subscription over.")
    services_forgotten: int = counted("Service subscriptions given up: queues are subscribed one by one.")

    direct_packets_accepted: int = counted("SFWD: packets of devices that were accepted.")
    direct_packets_unknown_key: int = counted("SFWD: packets sealed to a key that is erased.")
    direct_packets_refused: int = counted("SFWD: packets with a wrong signature, token or queue.")
    direct_queues_added: int = counted("Queues associated by direct notifications.")
    direct_queues_ended: int = counted("Queues whose devices have ended direct notifications.")
    direct_marks_left_out: int = counted(
        "Ended queues that were not marked: the token is not active, or has ended too many."
    )
    direct_queues_gone: int = counted("Queues removed a while after their SMP router called them deleted.")
    direct_queues_alive: int = counted(
        "Queues that their SMP router called deleted and went on to notify of."
    )

    own: OwnServerCounters = field(default_factory=OwnServerCounters)
    active: ActiveTokens = field(default_factory=ActiveTokens)
    latencies: NtfLatencies = field(default_factory=NtfLatencies)

    def count_full(self, limit: str) -> None:
        """Count what was refused at a limit of the store."""
        match RowLimit(limit):
            case RowLimit.TOKENS:
                self.tokens_over_limit += 1
            case RowLimit.SUBSCRIPTIONS:
                self.subscriptions_over_limit += 1
            case RowLimit.SUBSCRIPTIONS_OF_TOKEN:
                self.subscriptions_over_token_limit += 1

    def count_store_error(self) -> None:
        self.store_errors += 1

    def lose_events(self, count: int) -> None:
        self.events_failed += count
