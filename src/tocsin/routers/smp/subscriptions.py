"""Who gets what: at most one connection for each queue, each notifier and each service.

Taking over is immediate; the connection that lost is told at the next flush of late events (smp.md 8.7, 9.4).
"""

from __future__ import annotations

from tocsin.observability.smp_counters import SmpCounters
from tocsin.protocol.smp.responses import QueueDeleted, ServiceSubscriptionEnded, SubscriptionEnded
from tocsin.routers.smp.peers import Delivery, Event, Peer


class Subscriptions:
    def __init__(self, counters: SmpCounters) -> None:
        self._counters = counters
        self._recipients: dict[bytes, Peer] = {}
        self._notifiers: dict[bytes, Peer] = {}
        self._services: dict[bytes, Peer] = {}
        self.told: set[Peer] = set()
        """Connections with late events."""

    def recipient(self, recipient_id: bytes) -> Peer | None:
        return self._recipients.get(recipient_id)

    def notifier(self, notifier_id: bytes) -> Peer | None:
        return self._notifiers.get(notifier_id)

    @property
    def has_services(self) -> bool:
        return bool(self._services)

    def service(self, service_id: bytes) -> Peer | None:
        return self._services.get(service_id)

    def subscribe(self, peer: Peer, recipient_id: bytes) -> Delivery:
        """The last one wins. Subscribing again on the same connection starts the delivery anew."""
        before = self._recipients.get(recipient_id)
        if before is not None and before is not peer:
            del before.deliveries[recipient_id]
            before.undelivered.discard(recipient_id)
            self._tell(before, recipient_id, SubscriptionEnded())
        self._recipients[recipient_id] = peer
        delivery = peer.deliveries[recipient_id] = Delivery(by_get=False)
        return delivery

    def subscribe_notifier(self, peer: Peer, notifier_id: bytes) -> None:
        before = self._notifiers.get(notifier_id)
        if before is peer:
            return
        if before is not None:
            before.notifiers.discard(notifier_id)
            self._tell(before, notifier_id, SubscriptionEnded())
        self._notifiers[notifier_id] = peer
        peer.notifiers.add(notifier_id)

    def end_notifier(self, notifier_id: bytes, *, unless: Peer) -> None:
        """The notifier moves to a service: its own subscriber gets END."""
        before = self._notifiers.pop(notifier_id, None)
        if before is None:
            return
        before.notifiers.discard(notifier_id)
        if before is not unless:
            self._tell(before, notifier_id, SubscriptionEnded())

    def subscribe_service(self, peer: Peer, service_id: bytes) -> None:
        """Another connection of the service loses all of its subscriptions."""
        before = self._services.get(service_id)
        if before is not None and before is not peer:
            self._tell(before, service_id, ServiceSubscriptionEnded(before.service_notifiers or 0))
            before.service_notifiers = None
        self._services[service_id] = peer
        if peer.service_notifiers is None:
            peer.service_notifiers = 0

    def count_for_service(self, service_id: bytes, change: int) -> None:
        peer = self._services.get(service_id)
        if peer is not None and peer.service_notifiers is not None:
            peer.service_notifiers = max(0, peer.service_notifiers + change)

    def end_for_service(self, service_id: bytes, notifier_id: bytes, *, unless: Peer) -> None:
        """The service loses one notifier to another subscriber."""
        peer = self._services.get(service_id)
        self.count_for_service(service_id, -1)
        if peer is not None and peer is not unless:
            self._tell(peer, notifier_id, SubscriptionEnded())

    def delete_queue(self, recipient_id: bytes, *, unless: Peer | None) -> None:
        peer = self._recipients.pop(recipient_id, None)
        if peer is not None:
            peer.deliveries.pop(recipient_id, None)
            peer.undelivered.discard(recipient_id)
            if peer is not unless:
                self._tell(peer, recipient_id, QueueDeleted())
        if unless is not None:
            unless.deliveries.pop(recipient_id, None)

    def delete_notifier(self, notifier_id: bytes, service_id: bytes | None, *, unless: Peer | None) -> None:
        peer = self._notifiers.pop(notifier_id, None)
        if peer is not None:
            peer.notifiers.discard(notifier_id)
        if service_id is not None:
            self.count_for_service(service_id, -1)
            peer = self._services.get(service_id) or peer
        if peer is not None and peer is not unless:
            self._tell(peer, notifier_id, QueueDeleted())

    def drop(self, peer: Peer) -> None:
        """The connection is gone."""
        for recipient_id, delivery in peer.deliveries.items():
            if not delivery.by_get and self._recipients.get(recipient_id) is peer:
                del self._recipients[recipient_id]
        for notifier_id in peer.notifiers:
            if self._notifiers.get(notifier_id) is peer:
                del self._notifiers[notifier_id]
        service = peer.session.service
        if service is not None and self._services.get(service.service_id) is peer:
            del self._services[service.service_id]
        self.told.discard(peer)

    def tell_later(self, peer: Peer, event: Event) -> None:
        """With the next flush."""
        peer.late_events.append(event)
        self.told.add(peer)

    def flush_late_events(self) -> None:
        for peer in list(self.told):
            self._counters.ends_sent += peer.flush_late_events()
            if not peer.late_events:
                self.told.discard(peer)

    def _tell(
        self,
        peer: Peer,
        entity_id: bytes,
        event: SubscriptionEnded | ServiceSubscriptionEnded | QueueDeleted,
    ) -> None:
        self.tell_later(peer, (entity_id, event))
        self._counters.subscriptions_taken_over += not isinstance(event, QueueDeleted)
