"""What the operator may do to queues, by sender or link id (smp.md 9.5, 10.2)."""

from __future__ import annotations

from dataclasses import replace

from tocsin.protocol.error_codes import Blocked
from tocsin.protocol.router_answers import Refused
from tocsin.smp_router.queues import delete_queue
from tocsin.smp_router.session.requests import SmpState
from tocsin.smp_router.store.records import QueueRecord, QueueStatus


class QueueOperator:
    def __init__(self, state: SmpState) -> None:
        self._state = state

    def queue_status(self, sender_or_link_id: bytes) -> QueueStatus | Blocked | None:
        """None if there is no such queue."""
        queue = self._find(sender_or_link_id)
        return None if queue is None else queue.status

    async def block(self, sender_or_link_id: bytes, reason: Blocked) -> bool:
        """The subscriber is told at once. False if there is no such queue."""
        queue = self._find(sender_or_link_id)
        if queue is None:
            return False
        self._state.store.update_queue(replace(queue, status=reason))
        self._state.counters.queues_blocked += 1
        await self._state.store.commit()
        if peer := self._state.subscriptions.recipient_of(queue):
            event = (queue.recipient_id, Refused(reason))
            if not peer.try_send([event]):
                self._state.subscriptions.tell_later(peer, event)
        return True

    async def unblock(self, sender_or_link_id: bytes) -> bool:
        queue = self._find(sender_or_link_id)
        if queue is None or not isinstance(queue.status, Blocked):
            return False
        self._state.store.update_queue(replace(queue, status=QueueStatus.ACTIVE))
        await self._state.store.commit()
        return True

    async def delete(self, sender_or_link_id: bytes) -> bool:
        queue = self._find(sender_or_link_id)
        if queue is None:
            return False
        delete_queue(self._state, queue, by=None)
        await self._state.store.commit()
        return True

    def _find(self, sender_or_link_id: bytes) -> QueueRecord | None:
        store = self._state.store
        return store.queue_by_sender(sender_or_link_id) or store.queue_by_link(sender_or_link_id)
