"""Delivery of notifications to notifiers and services (smp.md 8.4).

Theory of operation. A notification is stored with its message. A pass looks at every notifier with stored notifications
and sends the notifications of each connection together. NMSG has no acknowledgement, so a sent notification stays in
the store until it is confirmed. It is confirmed when the peer's system has acknowledged its bytes and the peer has had
some seconds to store it, because a peer that is killed earlier loses it. Where our system does not report acknowledged
bytes, anything that the peer sends later counts instead. Commands that the peer sent meanwhile prove nothing: they may
have crossed the notification on the way.

A connection that breaks leaves its unconfirmed notifications to the next subscriber. They may arrive twice, with the
same nonce, but they are never lost. A notification that was sent before is confirmed sooner, so that a connection that
keeps breaking does not repeat everything each time, but never before a peer whose store hangs has broken off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from tocsin.events.delivery_events import Stage
from tocsin.protocol.smp.responses import NotificationReceived
from tocsin.smp_router.session.peers import Event, Peer
from tocsin.smp_router.session.requests import NamedNotification, SmpState
from tocsin.smp_router.store.records import StoredNotification

NOTIFICATIONS_PER_BLOCK: Final = 80
SHARES_OF_TIME: Final = (1.0, 0.5, 0.2)
"""Share of the confirmation time for a notification that was sent before never, once, or more often."""
OUTLASTS_PEER: Final = 3.0
"""Seconds for which every notification is kept, unless the setting is less: our NTF router breaks off after two."""


@dataclass(slots=True)
class _SentBatch:
    """Notifications that were sent together to one connection."""

    sent: list[NamedNotification]
    upto: int
    """Blocks that the connection had written, including the last of these notifications."""
    received_at: float
    """The time of the peer's last block before these were sent."""
    times: int
    """The number of times they reached a peer before."""
    reached_at: float | None = None
    """Loop time at which they were first known to have reached the peer."""

    def kept_for(self, patience: float) -> float:
        """Return the seconds for which they are kept after they reached the peer."""
        share = SHARES_OF_TIME[min(self.times, len(SHARES_OF_TIME) - 1)]
        return max(patience * share, min(patience, OUTLASTS_PEER))


class NotificationDelivery:
    """Sends stored notifications. A notification is sent to at most one connection at a time."""

    def __init__(self, state: SmpState) -> None:
        self._state = state
        self._unconfirmed: dict[Peer, list[_SentBatch]] = {}
        self._nonces = state.sent_nonces
        self._times: dict[tuple[bytes, bytes], int] = {}
        """The number of times that repeated notifications reached a peer, by notifier id and nonce."""
        self._all_sent: set[bytes] = set()
        """Notifiers whose stored notifications were all sent: a pass skips them."""
        self._out_of_order: set[bytes] = set()
        """Notifiers that may have an unsent notification older than a sent one."""

    def push(self, notifier_id: bytes) -> None:
        """Deliver a new notification: at once, or with the next pass if passes have an interval."""
        self._all_sent.discard(notifier_id)
        if self._state.settings.notification_interval == 0:
            self._deliver([notifier_id])

    def deliver(self) -> None:
        """Make one pass."""
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
        """Return the unsent notifications, oldest first. Sent ones, which may be many, are not looked at."""
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
        """Forget what reached its peer at least `patience` seconds ago (default: the setting)."""
        for peer in list(self._unconfirmed):
            self._confirm(peer, patience)

    def _confirm(self, peer: Peer, patience: float | None = None) -> None:
        if patience is None:
            patience = self._state.settings.notification_confirm_after
        batches, now = self._unconfirmed.pop(peer), _now()
        self._note_reached(peer, batches, now)
        kept = []
        for batch in batches:
            if batch.reached_at is None or now < batch.reached_at + batch.kept_for(patience):
                kept.append(batch)
            else:
                self._forget(batch)
        if kept:
            self._unconfirmed[peer] = kept

    @staticmethod
    def _note_reached(peer: Peer, batches: Sequence[_SentBatch], now: float) -> None:
        connection = peer.connection.connection
        acknowledged, received_at = connection.blocks_acknowledged, connection.received_at
        for batch in reversed(batches):
            if batch.reached_at is not None:
                break  # earlier batches arrived before
            if received_at > batch.received_at if acknowledged is None else acknowledged >= batch.upto:
                batch.reached_at = now

    def drop(self, peer: Peer) -> None:
        """Prepare unconfirmed notifications to be sent again, because their connection is gone."""
        if peer in self._unconfirmed:
            self._confirm(peer)
        again: set[bytes] = set()
        for batch in self._unconfirmed.pop(peer, []):
            times = batch.times + (batch.reached_at is not None)
            for notifier_id, nonce, _ in batch.sent:
                if times:
                    self._times[notifier_id, nonce] = times
                self._discard_nonce(notifier_id, nonce)
                again.add(notifier_id)
            self._state.counters.notifications_repeated += len(batch.sent)
        self._out_of_order |= again & self._nonces.keys()

    def expire(self) -> int:
        """Remove old notifications. Returns how many were removed."""
        before = int(self._state.clock.now() - self._state.settings.notification_ttl)
        expired = self._state.store.expire_notifications(before)
        self._state.counters.notifications_expired += len(expired)
        self._state.events.record(Stage.EXPIRED, [NamedNotification(*each) for each in expired])
        self._forget_times()
        return len(expired)

    def _forget_times(self) -> None:
        """Forget how often notifications were sent that are no longer stored."""
        notifications = self._state.store.notifications
        stored = {
            notifier_id: {each.nonce for each in notifications(notifier_id)} for notifier_id, _ in self._times
        }
        self._times = {key: times for key, times in self._times.items() if key[1] in stored[key[0]]}

    def _recipient_of(self, notifier_id: bytes) -> Peer | None:
        subscriptions = self._state.subscriptions
        subscriber = subscriptions.notifier(notifier_id)
        if subscriber is None and not subscriptions.has_services:
            return None  # The notifier is offline: the common case does not read the queue.
        queue = self._state.store.queue_by_notifier(notifier_id)
        if queue is None or queue.notifier is None:
            return None
        if queue.notifier.service_id is not None:
            return subscriptions.service(queue.notifier.service_id)
        return subscriber

    def _send(self, peer: Peer, waiting: Sequence[tuple[bytes, StoredNotification]]) -> None:
        """Send as much as the connection takes now. The rest waits for the next pass."""
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
            groups: dict[int, list[NamedNotification]] = {}
            for notifier_id, each in part:
                times = self._times.get((notifier_id, each.nonce), 0) if self._times else 0
                groups.setdefault(times, []).append(NamedNotification(notifier_id, each.nonce, each.sent_at))
                self._nonces.setdefault(notifier_id, set()).add(each.nonce)
            self._unconfirmed.setdefault(peer, []).extend(
                _SentBatch(sent, connection.blocks_written, received_at, times)
                for times, sent in groups.items()
            )
            self._state.events.record(Stage.SENT, groups.get(0, []))
            self._state.counters.notifications_sent += len(part)

    def _forget(self, batch: _SentBatch) -> None:
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
