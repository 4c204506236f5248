"""Which SMP routers an NTF router disagrees with, decided from the sums of both sides.

Theory of operation. Queues that are associated with the NTF router's service must be the same on both sides, so their
number and the XOR of their hashes are compared. Queues that are subscribed one by one are not marked at the SMP router,
and other NTF routers may have some there: if number and XOR are not those of all its unassociated notifiers, only the
queues themselves can tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tocsin.observability.queue_exports import NO_SERVICE


@dataclass(frozen=True, slots=True)
class QueueSum:
    """Of a set of queues."""

    queues: int = 0
    xor_high: int = 0
    xor_low: int = 0

    def with_more(self, other: QueueSum) -> QueueSum:
        return QueueSum(
            self.queues + other.queues, self.xor_high ^ other.xor_high, self.xor_low ^ other.xor_low
        )


@dataclass(slots=True)
class ServerSums:
    """One SMP router, as the NTF router sees it and as it sees itself."""

    service: int = NO_SERVICE
    associated: QueueSum = field(default_factory=QueueSum)
    individual: QueueSum = field(default_factory=QueueSum)
    ended: QueueSum = field(default_factory=QueueSum)
    by_service: dict[int, QueueSum] = field(default_factory=dict)
    """What the SMP router says."""

    @property
    def subscribed(self) -> int:
        return self.associated.queues + self.individual.queues

    @property
    def differs(self) -> bool:
        ours = self.by_service.get(self.service, QueueSum()) if self.service != NO_SERVICE else QueueSum()
        if self.associated != ours:
            return True
        alone = self.by_service.get(NO_SERVICE, QueueSum())
        return self.individual.queues > 0 and self.individual != alone


def sums_of_servers(
    subscribed: Iterable[tuple[int, int, bool, bool, QueueSum]],
    notifiers: Iterable[tuple[int, int, QueueSum]],
) -> dict[int, ServerSums]:
    """By server. Of subscriptions: server, service, wanted, associated; of notifiers: server, service."""
    found: dict[int, ServerSums] = defaultdict(ServerSums)
    for server, service, wanted, associated, queues in subscribed:
        sums = found[server]
        sums.service = sums.service or service  # of two addresses of one router, the one that has a service
        if not wanted:
            sums.ended = sums.ended.with_more(queues)
        elif associated:
            sums.associated = sums.associated.with_more(queues)
        else:
            sums.individual = sums.individual.with_more(queues)
    for server, service, queues in notifiers:
        found[server].by_service[service] = queues
    return dict(found)
