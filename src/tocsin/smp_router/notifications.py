"""Notifiers of queues and the subscriptions to their notifications (smp.md 8.5, 8.6)."""

from __future__ import annotations

import hmac
from dataclasses import replace
from typing import TypeVar

from tocsin.protocol.direct.smp_commands import SubscribeNotificationsAs
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.messages import Response
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications, SubscribeServiceNotifications
from tocsin.protocol.smp.queue_modes import NotifierIds
from tocsin.protocol.smp.recipient_commands import DisableNotifications, EnableNotifications
from tocsin.protocol.smp.responses import NotificationsEnabled, ServiceSubscribed, Subscribed
from tocsin.smp_router.queues import ATTEMPTS, make_notifier
from tocsin.smp_router.services import count_association, count_expectation
from tocsin.smp_router.session.peers import Peer, ServiceQueues
from tocsin.smp_router.session.requests import (
    SmpCommandTable,
    SmpQueueRequest,
    SmpRequest,
    SmpState,
    report_dropped,
)
from tocsin.smp_router.session.service_records import store_service_of
from tocsin.smp_router.store.records import NotifierRecord, QueueRecord

D = TypeVar("D", bound=DisableNotifications)
S = TypeVar("S", bound=SubscribeNotifications)


class NotifierCommands:
    """NKEY, NDEL, NSUB and NSUBS."""

    def __init__(self, state: SmpState) -> None:
        self._state = state

    def add_to(self, table: SmpCommandTable) -> None:
        table.add_for_queue(EnableNotifications, self.enable)
        table.add_for_queue(DisableNotifications, self.disable)
        table.add_for_queue(SubscribeNotifications, self.subscribe)
        table.add_for_queue(SubscribeNotificationsAs, self.subscribe)
        table.add(SubscribeServiceNotifications, self.subscribe_service)

    def enable(self, request: SmpQueueRequest[EnableNotifications]) -> Response:
        """NKEY: always makes a new id. The old notifier goes with the notifications that are stored for it."""
        queue, state = request.queue, self._state
        report_dropped(state, queue.notifier)
        for _ in range(ATTEMPTS):
            notifier, dh_key = make_notifier(state, request.command.notifier)
            if state.store.update_queue(replace(queue, notifier=notifier)):
                self._end_subscription(queue.notifier, request.peer)
                state.counters.notifiers_created += 1
                return NotificationsEnabled(NotifierIds(notifier.notifier_id, dh_key))
        return Refused(ErrorCode.INTERNAL)

    def disable(self, request: SmpQueueRequest[D]) -> Response:
        """NDEL"""
        queue = request.queue
        if queue.notifier is not None:
            report_dropped(self._state, queue.notifier)
            self._state.store.update_queue(replace(queue, notifier=None))
            self._end_subscription(queue.notifier, request.peer)
            self._state.counters.notifiers_deleted += 1
        return Done()

    def _end_subscription(self, old: NotifierRecord | None, peer: Peer) -> None:
        if old is not None:
            self._state.subscriptions.delete_notifier(old.notifier_id, old.service_id, unless=peer)

    def subscribe(self, request: SmpQueueRequest[S]) -> Response:
        """NSUB: the notifier goes to the connection or service that asked last (smp.md 8.5)."""
        queue, peer, subscriptions = request.queue, request.peer, self._state.subscriptions
        notifier = queue.notifier
        if notifier is None or notifier.notifier_id != request.entity_id:
            return Refused(ErrorCode.AUTH)  # an earlier command of the block replaced it
        service_id = None if request.session.service is None else request.session.service.service_id
        command = request.command
        if isinstance(command, SubscribeNotificationsAs) and command.ntf_router_id is not None:
            service_id = command.ntf_router_id
            if peer.ntf_router_id is None or not hmac.compare_digest(service_id, peer.ntf_router_id):
                return Refused(ErrorCode.SERVICE)
        if not store_service_of(self._state, request):
            return Refused(ErrorCode.SERVICE)
        self._count(peer, notifier, service_id)
        if service_id is None:
            if notifier.service_id is not None:
                self._associate(queue, notifier, None)
                subscriptions.end_for_service(notifier.service_id, notifier.notifier_id, unless=peer)
            subscriptions.subscribe_notifier(peer, notifier.notifier_id)
            return Subscribed(None)
        served = subscriptions.subscribe_service(peer, service_id)
        if notifier.service_id != service_id:
            if notifier.service_id is not None:
                subscriptions.end_for_service(notifier.service_id, notifier.notifier_id, unless=peer)
            subscriptions.end_notifier(notifier.notifier_id, unless=peer)
            self._associate(queue, notifier, service_id)
            subscriptions.note_receiver(notifier.notifier_id)
            served.add(notifier.notifier_id)
        elif not served.count:
            # Only the first of the queues associated before counts, until NSUBS counts all (smp.md 8.6).
            served.add(notifier.notifier_id)
        return Subscribed(service_id)

    def subscribe_service(self, request: SmpRequest[SubscribeServiceNotifications]) -> Response:
        """NSUBS: subscribe to everything that is associated with the service."""
        service, peer = request.session.service, request.peer
        assert service is not None
        counters = self._state.counters
        again = self._state.subscriptions.subscribe_service(peer, service.service_id).is_whole
        counters.notifier_service_subscriptions += not again
        associated = self._state.store.associated(service.service_id, ServiceRole.NOTIFIER)
        count_expectation(counters.ntf_services, request.command, associated, again=again)
        peer.service_queues = ServiceQueues.of(associated)
        return ServiceSubscribed(associated.count, associated.ids_hash)

    def _count(self, peer: Peer, notifier: NotifierRecord, service_id: bytes | None) -> None:
        counters, subscriptions = self._state.counters, self._state.subscriptions
        if service_id is None:
            is_subscribed = notifier.service_id is None and notifier.notifier_id in peer.notifiers
        else:
            is_subscribed = notifier.service_id == service_id and subscriptions.service(service_id) is peer
        counters.notifier_subscriptions += not is_subscribed
        counters.notifier_subscriptions_repeated += is_subscribed
        count_association(counters.ntf_services, notifier.service_id, service_id)

    def _associate(self, queue: QueueRecord, notifier: NotifierRecord, service_id: bytes | None) -> None:
        self._state.store.update_queue(replace(queue, notifier=replace(notifier, service_id=service_id)))
