"""Delivery of notifications to notifiers and services (smp.md 8.4).

Theory of operation. A notification is stored with its message. A pass looks at the notifiers that have a new
notification or a new receiver, and sends the notifications of each connection together. It works in slices of time, and
notifiers whose receiver is offline cost it nothing, however many there are.

A sent notification stays in the store until it is confirmed (`unconfirmed`). A connection that ends leaves what is
unconfirmed to the next subscriber. A direct session leaves it already when another connection takes the notifier over.
So a notification may arrive twice, with the same nonce, but it is never lost.

The notifications of a queue arrive in order, and those that wait share a block if they fit. If one has to be sent again
after newer ones went to another connection, these are sent again behind it. So the last one is the newest, and a
receiver that knows one of them needs none of those before it in its block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import chain, takewhile
from typing import Final

from tocsin.events.delivery_events import Stage
from tocsin.protocol.direct.dialects import is_direct
from tocsin.protocol.smp.responses import NotificationReceived
from tocsin.smp_router.session.peers import Event, Peer
from tocsin.smp_router.session.requests import NamedNotification, SmpState
from tocsin.smp_router.store.records import StoredNotification
from tocsin.smp_router.unconfirmed import Unconfirmed, unconfirmed_of
from tocsin.transport.turns import Pace, in_slices

NOTIFICATIONS_PER_BLOCK: Final = 80
BLOCKS_AT_ONCE: Final = 4
"""Blocks that one new notification may cause. More wait for a connection that had no room before."""


class NotificationDelivery:
    """Sends stored notifications. A notification is sent to at most one connection at a time."""

    def __init__(self, state: SmpState) -> None:
        self._state = state
        self._unconfirmed: dict[Peer, Unconfirmed] = {}
        self._nonces = state.sent_nonces
        self._sent_to: dict[bytes, Peer] = {}
        """The direct session to which a notifier's notifications were sent, while some are unconfirmed."""
        self._once_more: set[tuple[bytes, bytes]] = set()
        """Notifications that may have reached a peer, by notifier id and nonce: they are sent again only once."""
        self._due: dict[bytes, None] = {}
        """Notifiers that the next pass looks at, oldest first: they have a new notification or a new receiver."""
        self._by_peer: dict[Peer, dict[bytes, int]] = {}
        """Notifiers whose notifications wait for room in a connection, and when the receiver was looked up."""
        self._lookups = 0
        """Increases whenever others may have changed a receiver since the last lookup."""

    def push(self, *notifier_ids: bytes) -> None:
        """Deliver new notifications: at once, those of a connection together, or with the next pass if there is one."""
        if self._state.settings.notification_interval != 0:
            self._due |= dict.fromkeys(notifier_ids)
            return
        self._lookups += 1
        peers: dict[Peer, None] = {}
        for notifier_id in notifier_ids:
            peer = self._recipient_of(notifier_id)
            if peer is not None:
                self._by_peer.setdefault(peer, {})[notifier_id] = self._lookups
                peers[peer] = None
        for peer in peers:
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
        unconfirmed = self._unconfirmed.get(peer)
        if notifiers is None or not peer.connection.connection.write_room:
            return False
        if unconfirmed is not None and not unconfirmed.has_room:
            return False
        part: list[tuple[bytes, StoredNotification]] = []
        finished: list[bytes] = []
        for notifier_id, looked_up in notifiers.items():
            if looked_up != self._lookups and self._recipient_of(notifier_id) is not peer:
                self._due[notifier_id] = None
                finished.append(notifier_id)
                continue
            room = NOTIFICATIONS_PER_BLOCK - len(part)
            waiting = self._waiting(notifier_id, peer)
            if room < len(waiting) <= NOTIFICATIONS_PER_BLOCK:
                break  # they share the next block
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

    def _waiting(self, notifier_id: bytes, peer: Peer) -> list[StoredNotification]:
        """Return the unsent notifications, oldest first. Sent ones, which may be many, are not looked at.

        Those that are not durable are left out, and are due again when they are. A kill could take the message, and its
        notification would have replaced an older one at the NTF router.
        """
        if self._sent_to.get(notifier_id, peer) is not peer:
            self._take_back(notifier_id)
        sent = self._nonces.get(notifier_id, ())
        store = self._state.store
        waiting = list(
            takewhile(lambda each: each.nonce not in sent, store.newest_notifications(notifier_id))
        )
        waiting.reverse()
        undurable = store.undurable_notifications
        while waiting and waiting[-1].nonce in undurable:
            waiting.pop()
        return waiting

    def _take_back(self, notifier_id: bytes) -> None:
        """Send again what another session has not acknowledged, so that nothing newer arrives before it."""
        self._state.counters.notifications_repeated += len(self._nonces.pop(notifier_id))
        del self._sent_to[notifier_id]

    async def confirm(self, *, patience: float | None = None) -> None:
        """Forget what has arrived; if that is not certain, `patience` seconds later (default: the setting)."""
        pace = Pace()
        if patience is None:
            patience = self._state.settings.notification_confirm_after
        for peer in list(self._unconfirmed):
            unconfirmed = self._unconfirmed.get(peer)
            if unconfirmed is not None:  # else it left in a pause
                await self._forget_all(peer, unconfirmed.take_confirmed(_now(), patience), pace)

    async def drop(self, peer: Peer) -> None:
        """Prepare what is unconfirmed to be sent again, because its connection is gone."""
        pace = Pace()
        self._due |= dict.fromkeys(self._by_peer.pop(peer, ()))
        unconfirmed = self._unconfirmed.pop(peer, None)
        if unconfirmed is None:
            return
        received, again, once_more = unconfirmed.at_end(_now())
        self._once_more.update(each[:2] for each in once_more)
        lost: dict[bytes, list[bytes]] = {}
        for notifier_id, nonce, _ in chain(once_more, again):
            lost.setdefault(notifier_id, []).append(nonce)
        for notifier_id, nonces in lost.items():
            self._send_again(notifier_id, nonces, peer)
            if pace.is_over():
                await pace.pause()
        await self._forget_all(peer, received, pace)

    def _send_again(self, notifier_id: bytes, nonces: Iterable[bytes], peer: Peer) -> None:
        """Send again what a connection had, and behind it what others have had since."""
        sent = self._nonces.get(notifier_id, {})
        lost = [nonce for nonce in nonces if sent.get(nonce) is peer]
        if not lost:
            return  # another connection has it
        since = [nonce for nonce, other in sent.items() if other is not peer]
        for nonce in (*lost, *since):
            self._discard_nonce(notifier_id, nonce)
            self._state.counters.notifications_repeated += 1
        self._due[notifier_id] = None

    async def expire(self) -> int:
        """Remove old notifications. Returns how many were removed."""
        before = int(self._state.clock.now() - self._state.settings.notification_ttl)
        removed = 0
        async for notifier_id in in_slices(self._state.store.notifiers_with_notifications()):
            removed += self._expire(notifier_id, before)
        await self._forget_repeats()
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

    async def _forget_repeats(self) -> None:
        """Forget repeated notifications that are no longer stored."""
        stored: dict[bytes, set[bytes]] = {}
        async for notifier_id in in_slices({notifier_id: None for notifier_id, _ in self._once_more}):
            stored[notifier_id] = {each.nonce for each in self._state.store.notifications(notifier_id)}
        self._once_more = {
            each for each in self._once_more if each[0] not in stored or each[1] in stored[each[0]]
        }

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
        events: list[Event] = [
            (notifier_id, NotificationReceived(each.nonce, each.sealed_meta)) for notifier_id, each in part
        ]
        if not peer.try_send(events):
            return False
        peer.notifications_sent += len(part)
        sent = [NamedNotification(notifier_id, each.nonce, each.sent_at) for notifier_id, each in part]
        for notifier_id, nonce, _ in sent:
            self._nonces.setdefault(notifier_id, {})[nonce] = peer
        if is_direct(peer.session.dialect):
            self._sent_to.update((notifier_id, peer) for notifier_id, _ in part)
        unconfirmed = self._unconfirmed.get(peer)
        if unconfirmed is None:
            unconfirmed = self._unconfirmed[peer] = unconfirmed_of(peer)
        unconfirmed.add(sent, self._once_more)
        self._state.events.record(Stage.SENT, [each for each in sent if each[:2] not in self._once_more])
        self._state.counters.notifications_sent += len(part)
        self._state.counters.notification_blocks += 1
        return True

    async def _forget_all(self, peer: Peer, confirmed: Iterable[NamedNotification], pace: Pace) -> None:
        for notifier_id, nonce, _ in confirmed:
            if self._nonces.get(notifier_id, {}).get(nonce) is not peer:
                continue  # another connection has it, and confirms it
            removed = self._state.store.remove_notification(notifier_id, nonce)
            self._state.counters.notifications_confirmed += removed
            self._once_more.discard((notifier_id, nonce))
            self._discard_nonce(notifier_id, nonce)
            if pace.is_over():
                await pace.pause()

    def _discard_nonce(self, notifier_id: bytes, nonce: bytes) -> None:
        nonces = self._nonces.get(notifier_id)
        if nonces is not None:
            nonces.pop(nonce, None)
            if not nonces:
                del self._nonces[notifier_id]
                self._sent_to.pop(notifier_id, None)


def _now() -> float:
    return asyncio.get_running_loop().time()
