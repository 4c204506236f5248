"""Delivery of notifications to notifiers and services (smp.md 8.4), and what they are subscribed to (8.5, 8.6).

Theory of operation. A notification is stored with its message. A pass looks at every notifier with stored
notifications and sends those of each connection together. NMSG has no acknowledgement: what was sent stays in the
store, marked as under way, until it has reached the peer (its system has acknowledged the bytes; where ours does not
tell that, the peer has sent something since) and the peer has had some seconds to store it: a process that is killed
before loses it. Commands that come meanwhile prove nothing, they may have crossed it on the way. A connection that
breaks leaves its notifications to the next subscriber: they may arrive twice, with the same nonce, but they are never
lost. What is sent again is kept for a shorter time, so that connections which break all the time do not bring
everything each time.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from tocsin.protocol.direct.smp_commands import SubscribeNotificationsAs
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications, SubscribeServiceNotifications
from tocsin.protocol.smp.queue_modes import NotifierIds
from tocsin.protocol.smp.recipient_commands import DisableNotifications, EnableNotifications
from tocsin.protocol.smp.responses import (
    NotificationReceived,
    NotificationsEnabled,
    ServiceSubscribed,
    Subscribed,
)
from tocsin.smp_router.queues import ATTEMPTS, make_notifier
from tocsin.smp_router.session.events import Named
from tocsin.smp_router.session.peers import Event, Peer, ServiceQueues
from tocsin.smp_router.session.work import Execute, RouterState, Task, tell_dropped
from tocsin.smp_router.store.records import StoredNotification

NOTIFICATIONS_PER_BLOCK: Final = 80
SHARES_OF_TIME: Final = (1.0, 0.5, 0.2)
"""How much of the time to store it a peer has for a notification that was sent never, once, or more often before."""


@dataclass(slots=True)
class _UnderWay:
    """Notifications sent in one go to one connection."""

    sent: list[Named]
    upto: int
    """How many blocks the connection had been given, with the last of these."""
    received_at: float
    """When the connection last heard of the peer, at the time of sending."""
    times: int
    """How often they reached a peer before."""
    reached_at: float | None = None
    """When the peer was first seen to have them, in loop time."""

    @property
    def share(self) -> float:
        return SHARES_OF_TIME[min(self.times, len(SHARES_OF_TIME) - 1)]


class NotificationDelivery:
    """The delivery pass. One notification is under way to at most one connection."""

    def __init__(self, state: RouterState) -> None:
        self._state = state
        self._under_way: dict[Peer, list[_UnderWay]] = {}
        self._nonces = state.under_way
        self._times: dict[tuple[bytes, bytes], int] = {}
        """How often notifications that have to be sent again have reached a peer, by notifier id and nonce."""
        self._all_sent: set[bytes] = set()
        """Notifiers of which everything stored is under way: passes need not look at them."""
        self._out_of_order: set[bytes] = set()
        """Notifiers of which something may wait that is older than what is under way."""

    def added(self, notifier_id: bytes) -> None:
        """There is something to deliver: at once if passes are not paced."""
        self._all_sent.discard(notifier_id)
        if self._state.settings.notification_interval == 0:
            self._deliver([notifier_id])

    def deliver(self) -> None:
        """One pass."""
        self.confirm()
        all_sent = self._all_sent
        stored = self._state.store.notifiers_with_notifications()
        self._deliver([each for each in stored if each not in all_sent])

    def _deliver(self, notifier_ids: Sequence[bytes]) -> None:
        groups: dict[Peer, list[tuple[bytes, StoredNotification]]] = {}
        for notifier_id in notifier_ids:
            peer = self._recipient_of(notifier_id)
            if peer is None or not peer.connection.connection.write_room:
                continue
            if waiting := self._waiting(notifier_id):
                groups.setdefault(peer, []).extend((notifier_id, each) for each in waiting)
            else:
                self._all_sent.add(notifier_id)
        self._state.counters.notification_passes += bool(groups)
        for peer, waiting_for_peer in groups.items():
            self._send(peer, waiting_for_peer)

    def _waiting(self, notifier_id: bytes) -> list[StoredNotification]:
        """Oldest first. Of what is under way, which may be much, only the newest is looked at."""
        sent = self._nonces.get(notifier_id, ())
        if notifier_id in self._out_of_order:
            stored = self._state.store.notifications(notifier_id)
            waiting = [each for each in stored if each.nonce not in sent]
            if not waiting:
                self._out_of_order.discard(notifier_id)
            return waiting
        newest = self._state.store.newest_notifications(notifier_id)
        waiting = list(takewhile(lambda each: each.nonce not in sent, newest))
        waiting.reverse()
        return waiting

    def confirm(self, *, patience: float | None = None) -> None:
        """Forget what has reached peers at least so many seconds ago, as set if not given."""
        for peer in list(self._under_way):
            self._confirm(peer, patience)

    def _confirm(self, peer: Peer, patience: float | None = None) -> None:
        if patience is None:
            patience = self._state.settings.notification_confirm_after
        batches, now = self._under_way.pop(peer), _now()
        self._note_reached(peer, batches, now)
        kept = []
        for batch in batches:
            if batch.reached_at is None or now < batch.reached_at + patience * batch.share:
                kept.append(batch)
            else:
                self._forget(batch)
        if kept:
            self._under_way[peer] = kept

    @staticmethod
    def _note_reached(peer: Peer, batches: Sequence[_UnderWay], now: float) -> None:
        connection = peer.connection.connection
        acknowledged, received_at = connection.blocks_acknowledged, connection.received_at
        for batch in reversed(batches):
            if batch.reached_at is not None:
                break  # and so have those before
            if received_at > batch.received_at if acknowledged is None else acknowledged >= batch.upto:
                batch.reached_at = now

    def drop(self, peer: Peer) -> None:
        """The connection is gone: what the peer has not had for long enough is to be sent again."""
        if peer in self._under_way:
            self._confirm(peer)
        again: set[bytes] = set()
        for batch in self._under_way.pop(peer, []):
            times = batch.times + (batch.reached_at is not None)
            for notifier_id, nonce, _ in batch.sent:
                if times:
                    self._times[notifier_id, nonce] = times
                self._discard_nonce(notifier_id, nonce)
                again.add(notifier_id)
            self._state.counters.notifications_repeated += len(batch.sent)
        self._out_of_order |= again & self._nonces.keys()

    def expire(self) -> int:
        before = int(self._state.clock.now() - self._state.settings.notification_ttl)
        expired = self._state.store.expire_notifications(before)
        self._state.counters.notifications_expired += len(expired)
        self._state.events.expired([Named(*each) for each in expired])
        self._forget_times()
        return len(expired)

    def _forget_times(self) -> None:
        """Of those that are gone, by whatever way."""
        notifications = self._state.store.notifications
        stored = {
            notifier_id: {each.nonce for each in notifications(notifier_id)} for notifier_id, _ in self._times
        }
        self._times = {key: times for key, times in self._times.items() if key[1] in stored[key[0]]}

    def _recipient_of(self, notifier_id: bytes) -> Peer | None:
        subscriptions = self._state.subscriptions
        subscriber = subscriptions.notifier(notifier_id)
        if subscriber is None and not subscriptions.has_services:
            return None  # the common case when a notifier is away: without looking at the queue
        queue = self._state.store.queue_by_notifier(notifier_id)
        if queue is None or queue.notifier is None:
            return None
        if queue.notifier.service_id is not None:
            return subscriptions.service(queue.notifier.service_id)
        return subscriber

    def _send(self, peer: Peer, waiting: Sequence[tuple[bytes, StoredNotification]]) -> None:
        """As much as the connection takes now; the rest waits for the next pass."""
        connection = peer.connection.connection
        received_at = connection.received_at
        for start in range(0, len(waiting), NOTIFICATIONS_PER_BLOCK):
            part = waiting[start : start + NOTIFICATIONS_PER_BLOCK]
            events: list[Event] = [
                (notifier_id, NotificationReceived(each.nonce, each.sealed_meta))
                for notifier_id, each in part
            ]
            if not peer.try_send(events):
                return
            groups: dict[int, list[Named]] = {}
            for notifier_id, each in part:
                times = self._times.get((notifier_id, each.nonce), 0) if self._times else 0
                groups.setdefault(times, []).append(Named(notifier_id, each.nonce, each.sent_at))
                self._nonces.setdefault(notifier_id, set()).add(each.nonce)
            self._under_way.setdefault(peer, []).extend(
                _UnderWay(sent, connection.blocks_written, received_at, times)
                for times, sent in groups.items()
            )
            self._state.events.sent(groups.get(0, []))
            self._state.counters.notifications_sent += len(part)

    def _forget(self, batch: _UnderWay) -> None:
        for notifier_id, nonce, _ in batch.sent:
            removed = self._state.store.remove_notification(notifier_id, nonce)
            self._state.counters.notifications_confirmed += removed
            self._times.pop((notifier_id, nonce), None)
            self._discard_nonce(notifier_id, nonce)

    def _discard_nonce(self, notifier_id: bytes, nonce: bytes) -> None:
        self._all_sent.discard(notifier_id)
        nonces = self._nonces.get(notifier_id)
        if nonces is not None:
            nonces.discard(nonce)
            if not nonces:
                del self._nonces[notifier_id]
                self._out_of_order.discard(notifier_id)


def _now() -> float:
    return asyncio.get_running_loop().time()


class Notifiers:
    """NKEY, NDEL, NSUB and NSUBS."""

    def __init__(self, state: RouterState) -> None:
        self._state = state

    def handlers(self) -> dict[type[Command], Execute]:
        return {
            EnableNotifications: self.enable,
            DisableNotifications: self.disable,
            SubscribeNotifications: self.subscribe,
            SubscribeNotificationsAs: self.subscribe,
            SubscribeServiceNotifications: self.subscribe_service,
        }

    def enable(self, task: Task) -> Response:
        """NKEY: always a new id; the old one is gone, with what was stored for it."""
        queue, command, state = task.queue, task.command, self._state
        assert queue is not None
        assert isinstance(command, EnableNotifications)
        tell_dropped(state, queue.notifier)
        for _ in range(ATTEMPTS):
            notifier, dh_key = make_notifier(state, command.notifier)
            if state.store.update_queue(replace(queue, notifier=notifier)):
                self._tell_deleted(task)
                state.counters.notifiers_created += 1
                return NotificationsEnabled(NotifierIds(notifier.notifier_id, dh_key))
        return Refused(ErrorCode.INTERNAL)

    def disable(self, task: Task) -> Response:
        """NDEL"""
        queue = task.queue
        assert queue is not None
        if queue.notifier is not None:
            tell_dropped(self._state, queue.notifier)
            self._state.store.update_queue(replace(queue, notifier=None))
            self._tell_deleted(task)
            self._state.counters.notifiers_deleted += 1
        return Done()

    def _tell_deleted(self, task: Task) -> None:
        assert task.queue is not None
        if old := task.queue.notifier:
            self._state.subscriptions.delete_notifier(old.notifier_id, old.service_id, unless=task.peer)

    def subscribe(self, task: Task) -> Response:
        """NSUB: the notifier goes to whoever asked last, connection or service (smp.md 8.5)."""
        queue, peer, subscriptions = task.queue, task.peer, self._state.subscriptions
        assert queue is not None
        notifier = queue.notifier
        if notifier is None or notifier.notifier_id != task.entity_id:
            return Refused(ErrorCode.AUTH)  # replaced by a command before this one
        service_id = None if task.session.service is None else task.session.service.service_id
        if isinstance(task.command, SubscribeNotificationsAs) and task.command.ntf_router_id is not None:
            service_id = task.command.ntf_router_id
            if peer.ntf_router_id is None or not hmac.compare_digest(service_id, peer.ntf_router_id):
                return Refused(ErrorCode.SERVICE)
        self._state.counters.notifier_subscriptions += 1
        if service_id is None:
            if notifier.service_id is not None:
                self._associate(task, None)
                subscriptions.end_for_service(notifier.service_id, notifier.notifier_id, unless=peer)
            subscriptions.subscribe_notifier(peer, notifier.notifier_id)
            return Subscribed(None)
        served = subscriptions.subscribe_service(peer, service_id)
        if notifier.service_id != service_id:
            if notifier.service_id is not None:
                subscriptions.end_for_service(notifier.service_id, notifier.notifier_id, unless=peer)
            subscriptions.end_notifier(notifier.notifier_id, unless=peer)
            self._associate(task, service_id)
            served.add(notifier.notifier_id)
        elif not served.count:
            # Of queues associated before only the first counts, until NSUBS counts all (smp.md 8.6).
            served.add(notifier.notifier_id)
        return Subscribed(service_id)

    def subscribe_service(self, task: Task) -> Response:
        """NSUBS: everything associated with the service, in one go."""
        service, peer = task.session.service, task.peer
        assert service is not None
        self._state.counters.notifier_service_subscriptions += 1
        self._state.subscriptions.subscribe_service(peer, service.service_id)
        associated = self._state.store.associated(service.service_id, ServiceRole.NOTIFIER)
        peer.service_queues = ServiceQueues.of(associated)
        return ServiceSubscribed(associated.count, associated.ids_hash)

    def _associate(self, task: Task, service_id: bytes | None) -> None:
        assert task.queue is not None
        assert task.queue.notifier is not None
        notifier = replace(task.queue.notifier, service_id=service_id)
        self._state.store.update_queue(replace(task.queue, notifier=notifier))
