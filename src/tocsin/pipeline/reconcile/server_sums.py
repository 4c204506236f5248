"""Decides from the sums of both sides which SMP routers disagree with an NTF router.

Theory of operation. Queues associated with the NTF router's service must be equal on both sides, so their number and
the XOR of their hashes are compared. The SMP router does not mark queues that are subscribed one by one, and other NTF
routers may have some there. If their number and XOR differ from those of all unassociated notifiers, the queues must be
compared one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tocsin.events.queue_exports import NO_SERVICE


@dataclass(frozen=True, slots=True)
class QueueSum:
    """Number and XOR of a set of queues."""

    queues: int = 0
    xor_high: int = 0
    xor_low: int = 0

    def with_more(self, other: QueueSum) -> QueueSum:
        return QueueSum(
            self.queues + other.queues, self.xor_high ^ other.xor_high, self.xor_low ^ other.xor_low
        )


@dataclass(slots=True)
class ServerSums:
    """One SMP router as the NTF router sees it, and as it sees itself."""

    service: int = NO_SERVICE
    associated: QueueSum = field(default_factory=QueueSum)
    individual: QueueSum = field(default_factory=QueueSum)
    ended: QueueSum = field(default_factory=QueueSum)
    by_service: dict[int, QueueSum] = field(default_factory=dict)
    """As the SMP router exported them."""

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
    """Sums by server. `subscribed`: server, service, wanted, associated, sum. `notifiers`: server, service, sum."""
    found: dict[int, ServerSums] = defaultdict(ServerSums)
    for server, service, wanted, associated, queues in subscribed:
        sums = found[server]
        sums.service = sums.service or service  # of two addresses of one router, one may lack a service
        if not wanted:
            sums.ended = sums.ended.with_more(queues)
        elif associated:
            sums.associated = sums.associated.with_more(queues)
        else:
            sums.individual = sums.individual.with_more(queues)
    for server, service, queues in notifiers:
        found[server].by_service[service] = queues
    return dict(found)
