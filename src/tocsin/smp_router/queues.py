"""Creating, securing, suspending, inspecting and deleting queues (smp.md 6.6)."""

from __future__ import annotations

import hmac
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, TypeVar

from tocsin.crypto.keys import X25519PublicKey
from tocsin.protocol.direct.queue_ids import ids_for
from tocsin.protocol.direct.smp_commands import CreateNotifyingQueue, NtfSubscription
from tocsin.protocol.error_codes import CommandFault, ErrorCode, RouterError
from tocsin.protocol.messages import Response
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.smp.queue_information import (
    DeliveryState,
    HeadMessage,
    MessageKind,
    QueueInformation,
    SubscriptionInformation,
)
from tocsin.protocol.smp.queue_modes import (
    LinkRequest,
    NotifierIds,
    NotifierKeys,
    QueueMode,
    SubscriptionMode,
)
from tocsin.protocol.smp.recipient_commands import (
    CreateQueue,
    DeleteQueue,
    InspectQueue,
    ReplaceRecipientKeys,
    SecureQueue,
    SuspendQueue,
)
from tocsin.protocol.smp.responses import QueueCreated, QueueInspected
from tocsin.protocol.smp.sender_commands import SecureQueueBySender, SetsSenderKey
from tocsin.smp_router.direct.keyless_notifiers import make_keyless_notifier
from tocsin.smp_router.direct.packet_outbox import PacketOutbox
from tocsin.smp_router.services import subscribe_recipient
from tocsin.smp_router.session.peers import Peer
from tocsin.smp_router.session.requests import (
    SmpCommandTable,
    SmpQueueRequest,
    SmpRequest,
    SmpState,
    report_dropped,
)
from tocsin.smp_router.session.service_records import store_service_of
from tocsin.smp_router.store.records import NotifierRecord, QueueLink, QueueRecord, QueueStatus

C = TypeVar("C", bound=CreateQueue)
DQ = TypeVar("DQ", bound=DeleteQueue)

ATTEMPTS: Final = 3
"""Ids are random: three collisions in a row mean that the machine is broken."""


class QueueCommands:
    """NEW, KEY, SKEY, RKEY, OFF, DEL and QUE."""

    def __init__(self, state: SmpState, outbox: PacketOutbox) -> None:
        self._state = state
        self._outbox = outbox

    def add_to(self, table: SmpCommandTable) -> None:
        table.add(CreateQueue, self.create)
        table.add(CreateNotifyingQueue, self.create)
        table.add_for_queue(SecureQueue, self.secure)
        table.add_for_queue(SecureQueueBySender, self.secure_by_sender)
        table.add_for_queue(ReplaceRecipientKeys, self.replace_recipient_keys)
        table.add_for_queue(SuspendQueue, self.suspend)
        table.add_for_queue(DeleteQueue, self.delete)
        table.add_for_queue(InspectQueue, self.inspect)

    def create(self, request: SmpRequest[C]) -> Response:
        """NEW"""
        command = request.command
        if fault := self._creation_fault(request):
            return Refused(fault)
        if not store_service_of(self._state, request):
            return Refused(ErrorCode.SERVICE)
        link = command.request.link if command.request is not None else None
        chosen = link is not None or _direct(command) is not None
        for _ in range(1 if chosen else ATTEMPTS):
            created = self._try_to_create(request, link)
            if created is not None:
                return created
        return Refused(ErrorCode.AUTH if chosen else ErrorCode.INTERNAL)

    def _creation_fault(self, request: SmpRequest[C]) -> RouterError | None:
        command, settings = request.command, self._state.settings
        if not settings.new_queues or not _password_fits(settings.create_password, command.password):
            return ErrorCode.AUTH
        link, direct = command.request.link if command.request is not None else None, _direct(command)
        ids = ids_for(request.corr_id)
        if link is not None and not hmac.compare_digest(link.sender_id, ids.sender_id):
            return CommandFault.PROHIBITED
        if direct is not None and not hmac.compare_digest(direct.notifier_id, ids.notifier_id):
            return CommandFault.PROHIBITED
        if request.session.service is not None and command.subscription is not SubscriptionMode.SUBSCRIBE:
            return CommandFault.PROHIBITED
        if self._state.store.queue_count() >= settings.max_queues:
            self._state.counters.queues_refused += 1
            return ErrorCode.QUOTA
        if direct is not None and not self._outbox.has_room([direct.ntf_router]):
            self._state.counters.packets_over_limit += 1
            return ErrorCode.QUOTA
        return None

    def _try_to_create(self, request: SmpRequest[C], link: LinkRequest | None) -> QueueCreated | None:
        state, command, new_id = self._state, request.command, self._state.randomness.new_id
        dh_key = state.randomness.new_dh_key()
        service, direct = request.session.service, _direct(command)
        notifier = None
        if direct is not None:
            notifier = make_keyless_notifier(direct, state.randomness)
        elif command.notifier is not None:
            notifier = make_notifier(state, command.notifier)
        chosen = link is not None or direct is not None
        queue = QueueRecord(
            recipient_id=new_id(),
            recipient_keys=(command.auth_key.der,),
            dh_secret=dh_key.agree(command.dh_key),
            sender_id=ids_for(request.corr_id).sender_id if chosen else new_id(),
            mode=None if command.request is None else command.request.mode,
            link=None if link is None else QueueLink(link.link_id or new_id(), link.data),
            notifier=None if notifier is None else notifier[0],
            updated_at=day_of(state.clock.now()),
            service_id=None if service is None else service.service_id,
        )
        if not state.store.add_queue(queue):
            return None
        state.counters.queues_created += 1
        state.counters.links_set += link is not None
        state.counters.notifiers_created += notifier is not None
        state.counters.notifiers_created_by_new += notifier is not None
        if direct is not None:
            state.store.direct.set_minimum_priority(direct.notifier_id, direct.minimum)
            self._outbox.associate(direct.ntf_router, direct.notifier_id, direct.packet)
        if command.subscription is SubscriptionMode.SUBSCRIBE:
            subscribe_recipient(state, request, queue)
        return QueueCreated(
            queue.recipient_id,
            queue.sender_id,
            dh_key.public,
            queue.mode,
            None if queue.link is None else queue.link.link_id,
            queue.service_id,
            None if notifier is None else NotifierIds(notifier[0].notifier_id, notifier[1]),
        )

    def secure(self, request: SmpQueueRequest[SecureQueue]) -> Response:
        """KEY: the same key again is accepted, another key is refused."""
        return self._set_sender_key(request.queue, request.command)

    def secure_by_sender(self, request: SmpQueueRequest[SecureQueueBySender]) -> Response:
        """SKEY: only for queues whose recipient allowed it."""
        if request.queue.mode is not QueueMode.MESSAGING:
            return Refused(ErrorCode.AUTH)
        return self._set_sender_key(request.queue, request.command)

    def _set_sender_key(self, queue: QueueRecord, command: SetsSenderKey) -> Response:
        return Done() if set_sender_key(self._state, queue, command) else Refused(ErrorCode.AUTH)

    def replace_recipient_keys(self, request: SmpQueueRequest[ReplaceRecipientKeys]) -> Response:
        """RKEY: for contact queues, which several devices may manage."""
        queue, command = request.queue, request.command
        if queue.mode is not QueueMode.CONTACT:
            return Refused(ErrorCode.AUTH)
        self._state.store.update_queue(replace(queue, recipient_keys=tuple(key.der for key in command.keys)))
        return Done()

    def suspend(self, request: SmpQueueRequest[SuspendQueue]) -> Response:
        """OFF"""
        if request.queue.status is QueueStatus.ACTIVE:
            self._state.store.update_queue(replace(request.queue, status=QueueStatus.OFF))
            self._state.counters.queues_suspended += 1
        return Done()

    def delete(self, request: SmpQueueRequest[DQ]) -> Response:
        """DEL"""
        delete_queue(self._state, request.queue, by=request.peer)
        return Done()

    def inspect(self, request: SmpQueueRequest[InspectQueue]) -> Response:
        """QUE"""
        queue, store = request.queue, self._state.store
        delivery = request.peer.deliveries.get(queue.recipient_id)
        subscription = head = None
        if delivery is not None:
            state = DeliveryState.PROHIBITED if delivery.by_get else DeliveryState.NONE
            subscription = SubscriptionInformation(state, delivery.delivered)
        if message := store.head_message(queue.recipient_id):
            sent_at = datetime.fromtimestamp(message.sent_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            kind = MessageKind.QUOTA if message.is_quota_marker else MessageKind.MESSAGE
            head = HeadMessage(message.message_id, sent_at, kind)
        size = store.message_count(queue.recipient_id)
        return QueueInspected(
            QueueInformation(
                queue.sender_key is not None, queue.notifier is not None, subscription, size, head
            ).to_json()
        )


def _direct(command: CreateQueue) -> NtfSubscription | None:
    return command.direct if isinstance(command, CreateNotifyingQueue) else None


def set_sender_key(state: SmpState, queue: QueueRecord, command: SetsSenderKey) -> bool:
    """Set the sender's key. Returns False if the queue has another key already."""
    key = command.sender_key.der
    if queue.sender_key is None:
        state.store.update_queue(replace(queue, sender_key=key))
        state.counters.queues_secured += 1
        return True
    return hmac.compare_digest(queue.sender_key, key)


def make_notifier(state: SmpState, keys: NotifierKeys) -> tuple[NotifierRecord, X25519PublicKey]:
    """Return a notifier with a new id, and the router's public key of the key agreement."""
    dh_key = state.randomness.new_dh_key()
    secret = dh_key.agree(keys.dh_key)
    return NotifierRecord(state.randomness.new_id(), keys.auth_key.der, secret), dh_key.public


def delete_queue(state: SmpState, queue: QueueRecord, *, by: Peer | None) -> None:
    """Delete a queue with its messages and notifications. Subscribers other than `by` get DELD."""
    report_dropped(state, queue.notifier)
    state.store.delete_queue(queue.recipient_id)
    state.counters.queues_deleted += 1
    state.counters.queues_deleted_secured += queue.sender_key is not None
    state.counters.queues_deleted_new += queue.sender_key is None
    state.subscriptions.delete_queue(queue, unless=by)
    if queue.notifier is not None:
        notifier = queue.notifier
        state.subscriptions.delete_notifier(notifier.notifier_id, notifier.service_id, unless=by)


def _password_fits(needed: str | None, given: bytes | None) -> bool:
    """A password is ignored if the router needs none."""
    return needed is None or (given is not None and hmac.compare_digest(needed.encode(), given))


def day_of(now: int) -> int:
    """Return the midnight (UTC) before `now`."""
    return now - now % 86_400


def remove_link(state: SmpState, queue: QueueRecord) -> None:
    if queue.link is not None:
        state.store.update_queue(replace(queue, link=None))
