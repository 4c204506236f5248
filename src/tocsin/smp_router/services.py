"""Messaging services (v19, smp.md Appendix C): one connection receives the messages of all queues of a service.

A queue belongs to the service that subscribed to it last, until an ordinary connection does. The store remembers it.
Without v19 there are no such services: SUB and NEW subscribe the connection, and SUBS is refused, as in 6.5.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final, TypeVar

from tocsin.protocol.error_codes import Blocked, CommandFault
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.recipient_commands import SubscribeService
from tocsin.protocol.smp.responses import AllDelivered, ServiceSubscribed
from tocsin.protocol.smp.versions import SERVICE_HASH_VERSION
from tocsin.smp_router.session.peers import Delivery, Peer, ServiceQueues
from tocsin.smp_router.session.requests import (
    SendBacklog,
    SmpQueueRequest,
    SmpRequest,
    SmpState,
    deliver_head,
)
from tocsin.smp_router.store.records import QueueRecord

C = TypeVar("C", bound=Command)

QUEUES_AT_ONCE: Final = 256
"""Queues to look at before other tasks get their turn."""


def subscribe_recipient(state: SmpState, request: SmpRequest[C], queue: QueueRecord) -> Delivery:
    """SUB and NEW: the queue goes to the connection or service that asked last."""
    subscriptions, peer, service = state.subscriptions, request.peer, request.session.service
    recipient_id = queue.recipient_id
    if not subscriptions.receive_services:
        return subscriptions.subscribe(peer, recipient_id)
    own = None if service is None else service.service_id
    if queue.service_id is not None and queue.service_id != own:
        subscriptions.end_for_service(queue.service_id, recipient_id, unless=peer)
    if queue.service_id != own:
        state.store.update_queue(replace(queue, service_id=own))
    if own is None:
        return subscriptions.subscribe(peer, recipient_id)
    served = subscriptions.subscribe_service(peer, own)
    subscriptions.end_recipient(recipient_id, unless=peer)
    is_new = not isinstance(request, SmpQueueRequest)  # NEW
    if queue.service_id != own or is_new or not served.count:
        # Only the first of the queues associated before counts, until SUBS counts all (smp.md 8.6).
        served.add(recipient_id)
    delivery = peer.deliveries[recipient_id] = Delivery(by_get=False)
    return delivery


class ServiceCommands:
    """SUBS, and the messages that wait when a service subscribes."""

    def __init__(self, state: SmpState) -> None:
        self._state = state

    async def subscribe(self, request: SmpRequest[SubscribeService]) -> Response:
        """SUBS: subscribe to all queues of the service. Waiting messages follow the answer, then ALLS."""
        state, peer, service = self._state, request.peer, request.session.service
        assert service is not None
        if not state.subscriptions.receive_services:
            return Refused(CommandFault.PROHIBITED)
        await state.store.commit()
        state.counters.service_subscriptions += 1
        state.subscriptions.subscribe_service(peer, service.service_id)
        associated = state.store.associated(service.service_id, ServiceRole.MESSAGING)
        peer.service_queues = ServiceQueues.of(associated)
        request.effects.append(SendBacklog(service.service_id))
        return ServiceSubscribed(associated.count, associated.ids_hash)

    async def send_backlog(self, peer: Peer, service_id: bytes) -> None:
        """Send waiting messages as fast as the connection takes them. Stops if another connection takes over."""
        state, session = self._state, peer.session
        for number, recipient_id in enumerate(state.store.queues_with_messages()):
            if number % QUEUES_AT_ONCE == QUEUES_AT_ONCE - 1:
                await asyncio.sleep(0)
            if state.subscriptions.service(service_id) is not peer:
                return
            event = self._waiting_message(peer, service_id, recipient_id)
            if event is not None:
                await peer.connection.send([session.response(b"", recipient_id, event)])
        if session.version >= SERVICE_HASH_VERSION:
            await peer.connection.send([session.response(b"", b"", AllDelivered())])

    def _waiting_message(self, peer: Peer, service_id: bytes, recipient_id: bytes) -> Response | None:
        """Return the head message, unless the connection has one of this queue already."""
        queue = self._state.store.queue_by_recipient(recipient_id)
        if queue is None or queue.service_id != service_id:
            return None
        if isinstance(queue.status, Blocked):
            return Refused(queue.status)
        delivery = peer.deliveries.get(recipient_id)
        if delivery is None:
            delivery = peer.deliveries[recipient_id] = Delivery(by_get=False)
        if delivery.by_get or delivery.delivered is not None:
            return None
        return deliver_head(self._state, queue, delivery)
