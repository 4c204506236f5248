"""Delivery of notifications to notifiers and services (smp.md 8.4).

Theory of operation. A notification is stored with its message. A pass looks at the notifiers that have a new
notification or a new receiver, and sends the notifications of each connection together. It works in slices of time, and
notifiers whose receiver is offline cost it nothing, however many there are.

NMSG has no acknowledgement, so a sent notification stays in the store until it is confirmed. It is confirmed when the
peer's system has acknowledged its bytes and the peer has had some seconds to store it, because a peer that is killed
earlier loses it. Where our system does not report acknowledged bytes, anything that the peer sends later counts
instead. Commands that the peer sent meanwhile prove nothing: they may have crossed the notification on the way.

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
from tocsin.transport.turns import Pace, in_slices

NOTIFICATIONS_PER_BLOCK: Final = 80
BLOCKS_AT_ONCE: Final = 4
"""Blocks that one new notification may cause. More wait for a connection that had no room before."""
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
        self._due: dict[bytes, None] = {}
        """Notifiers that the next pass looks at, oldest first: they have a new notification or a new receiver."""
        self._by_peer: dict[Peer, dict[bytes, int]] = {}
        """Notifiers whose notifications wait for room in a connection, and when the receiver was looked up."""
        self._lookups = 0
        """Increases whenever others may have changed a receiver since the last lookup."""
        self._out_of_order: set[bytes] = set()
        """Notifiers that may have an unsent notification older than a sent one."""

    def push(self, notifier_id: bytes) -> None:
        """Deliver a new notification: at once, or with the next pass if passes have an interval."""
        if self._state.settings.notification_interval != 0:
            self._due[notifier_id] = None
        elif (peer := self._recipient_of(notifier_id)) is not None:
            self._lookups += 1
            self._by_peer.setdefault(peer, {})[notifier_id] = self._lookups
            blocks = 0
            while blocks < BLOCKS_AT_ONCE and self._send_some(peer):
                blocks += 1
            self._state.counters.notification_passes += blocks > 0

    async def deliver(self) -> None:
        """Make one pass, in slices, over what is due and what had no room before."""
        await self.confirm()
        self._lookups += 1
        pace = Pace()
        await self._note_new_receivers(pace)
        while self._due:
            notifier_id = next(iter(self._due))
            del self._due[notifier_id]
            peer = self._recipient_of(notifier_id)
            if peer is not None:
                self._by_peer.setdefault(peer, {})[notifier_id] = self._lookups
            if pace.is_over():
                await self._pause(pace)
        has_sent = False
        for peer in list(self._by_peer):
            while self._send_some(peer):
                has_sent = True
                if pace.is_over():
                    await self._pause(pace)
        self._state.counters.notification_passes += has_sent

    async def _note_new_receivers(self, pace: Pace) -> None:
        """Notifiers whose receiver subscribed since the last pass are due. Of a service, these are all with its id."""
        subscriptions, store = self._state.subscriptions, self._state.store
        anew = subscriptions.notifiers_received_anew
        if anew:  # what waits for them is older than what is due
            self._due = {each: None for each in anew if each not in self._due} | self._due
            anew.clear()
        services = frozenset(subscriptions.services_received_anew)
        if services:
            for notifier_id in store.notifiers_with_notifications():
                queue = store.queue_by_notifier(notifier_id)
                notifier = None if queue is None else queue.notifier
                if notifier is not None and notifier.service_id in services:
                    self._due[notifier_id] = None
                if pace.is_over():
                    await self._pause(pace)
            subscriptions.services_received_anew -= services

    async def _pause(self, pace: Pace) -> None:
        """Let others run, then commit: a notification must not leave before its message is on disk."""
        await pace.pause()
        await self._state.store.commit()
        self._lookups += 1

    def _send_some(self, peer: Peer) -> bool:
        """Send one block. Returns False if nothing is left to send, or if the connection takes no more now."""
        notifiers = self._by_peer.get(peer)
        if notifiers is None or not peer.connection.connection.write_room:
            return False
        part: list[tuple[bytes, StoredNotification]] = []
        finished: list[bytes] = []
        for notifier_id, looked_up in notifiers.items():
            if looked_up != self._lookups and self._recipient_of(notifier_id) is not peer:
                self._due[notifier_id] = None
                finished.append(notifier_id)
                continue
            room = NOTIFICATIONS_PER_BLOCK - len(part)
            waiting = self._waiting(notifier_id)
            part += ((notifier_id, each) for each in waiting[:room])
            if len(waiting) > room:
                break
            finished.append(notifier_id)
            if len(waiting) == room or len(finished) >= NOTIFICATIONS_PER_BLOCK:
                break
        if part and not self._send(peer, part):
            return False
        for notifier_id in finished:
            del notifiers[notifier_id]
        if not notifiers:
            del self._by_peer[peer]
        return bool(part) or bool(notifiers)

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

    async def confirm(self, *, patience: float | None = None) -> None:
        """Forget what reached its peer at least `patience` seconds ago (default: the setting)."""
        pace = Pace()
        for peer in list(self._unconfirmed):
            await self._confirm(peer, pace, patience)

    async def _confirm(self, peer: Peer, pace: Pace, patience: float | None = None) -> None:
        if patience is None:
            patience = self._state.settings.notification_confirm_after
        batches, now = self._unconfirmed.pop(peer, []), _now()
        self._note_reached(peer, batches, now)
        kept: list[_SentBatch] = []
        confirmed: list[_SentBatch] = []
        for batch in batches:
            is_early = batch.reached_at is None or now < batch.reached_at + batch.kept_for(patience)
            (kept if is_early else confirmed).append(batch)
        if kept:
            self._unconfirmed[peer] = kept
        for batch in confirmed:
            self._forget(batch)
            if pace.is_over():
                await pace.pause()

    @staticmethod
    def _note_reached(peer: Peer, batches: Sequence[_SentBatch], now: float) -> None:
        connection = peer.connection.connection
        acknowledged, received_at = connection.blocks_acknowledged, connection.received_at
        for batch in reversed(batches):
            if batch.reached_at is not None:
                break  # earlier batches arrived before
            if received_at > batch.received_at if acknowledged is None else acknowledged >= batch.upto:
                batch.reached_at = now

    async def drop(self, peer: Peer) -> None:
        """Prepare unconfirmed notifications to be sent again, because their connection is gone."""
        pace = Pace()
        self._due |= dict.fromkeys(self._by_peer.pop(peer, ()))
        await self._confirm(peer, pace)
        for batch in self._unconfirmed.pop(peer, []):
            times = batch.times + (batch.reached_at is not None)
            for notifier_id, nonce, _ in batch.sent:
                if times:
                    self._times[notifier_id, nonce] = times
                self._discard_nonce(notifier_id, nonce)
                self._due[notifier_id] = None
                if notifier_id in self._nonces:
                    self._out_of_order.add(notifier_id)
            self._state.counters.notifications_repeated += len(batch.sent)
            if pace.is_over():
                await pace.pause()

    async def expire(self) -> int:
        """Remove old notifications. Returns how many were removed."""
        before = int(self._state.clock.now() - self._state.settings.notification_ttl)
        removed = 0
        async for notifier_id in in_slices(self._state.store.notifiers_with_notifications()):
            removed += self._expire(notifier_id, before)
        await self._forget_times()
        return removed

    def _expire(self, notifier_id: bytes, before: int) -> int:
        store = self._state.store
        old = takewhile(lambda each: each.sent_at < before, store.notifications(notifier_id))
        expired = [
            NamedNotification(notifier_id, each.nonce, each.sent_at)
            for each in old
            if store.remove_notification(notifier_id, each.nonce)
        ]
        if expired:
            self._state.counters.notifications_expired += len(expired)
            self._state.events.record(Stage.EXPIRED, expired)
        return len(expired)

    async def _forget_times(self) -> None:
        """Forget how often notifications were sent that are no longer stored."""
        notifiers = dict.fromkeys(notifier_id for notifier_id, _ in self._times)
        stored: dict[bytes, set[bytes]] = {}
        async for notifier_id in in_slices(notifiers):
            stored[notifier_id] = {each.nonce for each in self._state.store.notifications(notifier_id)}
        for key in list(self._times):
            if key[0] in stored and key[1] not in stored[key[0]]:
                del self._times[key]

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

    def _send(self, peer: Peer, part: Sequence[tuple[bytes, StoredNotification]]) -> bool:
        """Send one block. Returns False, and sends nothing, if the connection does not take it."""
        connection = peer.connection.connection
        received_at = connection.received_at
        events: list[Event] = [
            (notifier_id, NotificationReceived(each.nonce, each.sealed_meta)) for notifier_id, each in part
        ]
        if not peer.try_send(events):
            return False
        groups: dict[int, list[NamedNotification]] = {}
        for notifier_id, each in part:
            times = self._times.get((notifier_id, each.nonce), 0) if self._times else 0
            groups.setdefault(times, []).append(NamedNotification(notifier_id, each.nonce, each.sent_at))
            self._nonces.setdefault(notifier_id, set()).add(each.nonce)
        self._unconfirmed.setdefault(peer, []).extend(
            _SentBatch(sent, connection.blocks_written, received_at, times) for times, sent in groups.items()
        )
        self._state.events.record(Stage.SENT, groups.get(0, []))
        self._state.counters.notifications_sent += len(part)
        return True

    def _forget(self, batch: _SentBatch) -> None:
        for notifier_id, nonce, _ in batch.sent:
            removed = self._state.store.remove_notification(notifier_id, nonce)
            self._state.counters.notifications_confirmed += removed
            self._times.pop((notifier_id, nonce), None)
            self._discard_nonce(notifier_id, nonce)

    def _discard_nonce(self, notifier_id: bytes, nonce: bytes) -> None:
        nonces = self._nonces.get(notifier_id)
        if nonces is not None:
            nonces.discard(nonce)
            if not nonces:
                del self._nonces[notifier_id]
                self._out_of_order.discard(notifier_id)


def _now() -> float:
    return asyncio.get_running_loop().time()
