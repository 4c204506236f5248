"""Messaging services (v7.md 2): one connection receives the messages of all queues of a service.

A queue belongs to the service that subscribed to it last, until an ordinary connection does. The store remembers it.
A router that does not offer v19 has no such services: SUB and NEW subscribe the connection, and SUBS is refused, as in
6.5. One that does executes SUBS in all versions from 16 on, and sends ALLS in all of them.
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
from tocsin.protocol.smp.service_subscriptions import UNKNOWN_COUNT, SubscribesService
from tocsin.smp_router.session.peers import Delivery, Peer, ServiceQueues
from tocsin.smp_router.session.requests import (
    SendBacklog,
    SmpQueueRequest,
    SmpRequest,
    SmpState,
    deliver_head,
)
from tocsin.smp_router.statistics.counters import ServiceCounters
from tocsin.smp_router.store.interface import Association
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
    is_new = not isinstance(request, SmpQueueRequest)  # NEW
    count_association(state.counters.rcv_services, None if is_new else queue.service_id, own)
    if queue.service_id is not None and queue.service_id != own:
        subscriptions.end_for_service(queue.service_id, recipient_id, unless=peer)
    if queue.service_id != own:
        state.store.update_queue(replace(queue, service_id=own))
    if own is None:
        return subscriptions.subscribe(peer, recipient_id)
    served = subscriptions.subscribe_service(peer, own)
    subscriptions.end_recipient(recipient_id, unless=peer)
    if queue.service_id != own or is_new or not served.count:
        # Only the first of the queues associated before counts, until SUBS counts all (smp.md 8.6).
        served.add(recipient_id)
    delivery = peer.deliveries[recipient_id] = Delivery(by_get=False)
    return delivery


def count_association(counters: ServiceCounters, before: bytes | None, after: bytes | None) -> None:
    """Count a SUB or NSUB by what it does to the queue's association with a service."""
    if before is None:
        counters.associations += after is not None
    elif after is None:
        counters.associations_removed += 1
    else:
        counters.associations_repeated += after == before
        counters.associations_moved += after != before


def count_expectation(
    counters: ServiceCounters, expected: SubscribesService, found: Association, *, again: bool
) -> None:
    """Count a SUBS or NSUBS, and how its client's number and hash compare with the store's. It is never refused."""
    if again:
        counters.repeated += 1
        return
    counters.queues += found.count
    surplus = found.count - expected.count
    if expected.count == UNKNOWN_COUNT or (not surplus and found.ids_hash == expected.ids_hash):
        counters.as_expected += 1
    elif surplus > 0:
        counters.more += 1
        counters.more_queues += surplus
    elif surplus < 0:
        counters.fewer += 1
        counters.fewer_queues -= surplus
    else:
        counters.different += 1


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
        again = state.subscriptions.subscribe_service(peer, service.service_id).is_whole
        state.counters.service_subscriptions += not again
        associated = state.store.associated(service.service_id, ServiceRole.MESSAGING)
        count_expectation(state.counters.rcv_services, request.command, associated, again=again)
        peer.service_queues = ServiceQueues.of(associated)
        request.effects.append(SendBacklog(service.service_id))
        return ServiceSubscribed(associated.count, associated.ids_hash)

    async def send_backlog(self, peer: Peer, service_id: bytes) -> None:
        """Send waiting messages as fast as the connection takes them. Stops if another connection takes over."""
        state, session = self._state, peer.session
        for number, recipient_id in enumerate(state.store.queues_of_service(service_id)):
            if number % QUEUES_AT_ONCE == QUEUES_AT_ONCE - 1:
                await asyncio.sleep(0)
            if state.subscriptions.service(service_id) is not peer:
                return
            event = self._waiting_message(peer, service_id, recipient_id)
            if event is not None:
                await peer.connection.send([session.response(b"", recipient_id, event)])
        await peer.connection.send([session.response(b"", b"", AllDelivered())])

    def _waiting_message(self, peer: Peer, service_id: bytes, recipient_id: bytes) -> Response | None:
        """Return the head message, unless the connection has one of this queue already."""
        if not self._state.store.message_count(recipient_id):
            return None
        queue = self._state.store.queue_by_recipient(recipient_id)
        if queue is None or queue.service_id != service_id:
            return None
        if isinstance(queue.status, Blocked):
            return Refused(queue.status)
        delivery = peer.deliveries.get(recipient_id)
        if delivery is None:
            delivery = peer.deliveries[recipient_id] = Delivery(by_get=False)
        if delivery.by_get or delivery.delivered is not None:
            self._state.counters.rcv_services.messages_already_delivered += 1
            return None
        self._state.counters.rcv_services.queues_with_messages += 1
        return deliver_head(self._state, queue, delivery, peer)
