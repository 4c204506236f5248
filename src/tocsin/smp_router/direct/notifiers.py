"""NSKEY, NPKT and NPRI, and the additions of direct notifications to NDEL and DEL."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.direct.queue_ids import ids_for
from tocsin.protocol.direct.smp_commands import (
    AssociateQueue,
    DeleteQueueProven,
    DisableNotificationsProven,
    SendPacketAgain,
    SetMinimumPriority,
)
from tocsin.protocol.direct.smp_responses import PacketStatus, QueueAssociated
from tocsin.protocol.error_codes import CommandFault, ErrorCode
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.router_answers import Done, Refused
from tocsin.smp_router.direct.keyless_notifiers import is_keyless, make_keyless_notifier
from tocsin.smp_router.direct.packet_outbox import PacketOutbox
from tocsin.smp_router.session.requests import (
    AnswerWithFate,
    SmpCommandTable,
    SmpQueueRequest,
    SmpState,
    report_dropped,
)
from tocsin.smp_router.store.records import QueueRecord

C = TypeVar("C", bound=Command)
P = TypeVar("P", DisableNotificationsProven, DeleteQueueProven)


class DirectNotifierCommands:
    """NSKEY, NPKT, NPRI, and NDEL and DEL with a proof for the NTF router."""

    def __init__(self, state: SmpState, outbox: PacketOutbox) -> None:
        self._state = state
        self._outbox = outbox

    def add_to(
        self,
        table: SmpCommandTable,
        *,
        disable: Callable[[SmpQueueRequest[DisableNotificationsProven]], Response],
        delete: Callable[[SmpQueueRequest[DeleteQueueProven]], Response],
    ) -> None:
        """`disable` and `delete` do what NDEL and DEL do without a proof."""
        table.add_for_queue(AssociateQueue, self.associate)
        table.add_for_queue(SendPacketAgain, self.send_again)
        table.add_for_queue(SetMinimumPriority, self.set_minimum)
        table.add_for_queue(DisableNotificationsProven, partial(self._proven, disable))
        table.add_for_queue(DeleteQueueProven, partial(self._proven, delete))

    def associate(self, request: SmpQueueRequest[AssociateQueue]) -> Response:
        """NSKEY: like NKEY, with an id that the client chose. Only the named NTF router can subscribe."""
        state, queue, command = self._state, request.queue, request.command
        wanted = command.subscription
        if not hmac.compare_digest(wanted.notifier_id, ids_for(request.corr_id).notifier_id):
            return Refused(CommandFault.PROHIBITED)
        if state.store.queue_by_notifier(wanted.notifier_id) is not None:
            return Refused(ErrorCode.AUTH)
        former = self._ntf_router(queue) if command.replaced is not None else None
        if not self._outbox.has_room([wanted.ntf_router, *([] if former is None else [former])]):
            state.counters.packets_over_limit += 1
            return Refused(ErrorCode.QUOTA)
        notifier, dh_key = make_keyless_notifier(wanted, state.randomness)
        report_dropped(state, queue.notifier)
        state.store.update_queue(replace(queue, notifier=notifier))
        if old := queue.notifier:
            state.subscriptions.delete_notifier(old.notifier_id, old.service_id, unless=request.peer)
        state.counters.notifiers_created += 1
        self._outbox.dissociate(former, command.replaced)
        state.store.direct.set_minimum_priority(notifier.notifier_id, wanted.minimum)
        self._outbox.associate(wanted.ntf_router, notifier.notifier_id, wanted.packet)
        return self._answer_with_fate(
            request, notifier.notifier_id, QueueAssociated(dh_key, PacketFate.PENDING)
        )

    def send_again(self, request: SmpQueueRequest[SendPacketAgain]) -> Response:
        """NPKT"""
        command, notifier = request.command, request.queue.notifier
        if notifier is None or not is_keyless(notifier):
            return Refused(CommandFault.PROHIBITED)
        if command.packet is None:
            fate = self._outbox.fate(notifier)
            return Refused(CommandFault.PROHIBITED) if fate is None else PacketStatus(fate)
        location = self._outbox.ntf_router_of(notifier)
        if location is None:  # forgotten: the client must create another notifier with NSKEY
            return Refused(CommandFault.PROHIBITED)
        waits = self._state.store.direct.packet_of(notifier.notifier_id) is not None
        if not waits and not self._outbox.has_room([location]):
            self._state.counters.packets_over_limit += 1
            return Refused(ErrorCode.QUOTA)
        self._outbox.associate(location, notifier.notifier_id, command.packet)
        return self._answer_with_fate(request, notifier.notifier_id, PacketStatus(PacketFate.PENDING))

    def set_minimum(self, request: SmpQueueRequest[SetMinimumPriority]) -> Response:
        """NPRI"""
        notifier = request.queue.notifier
        if notifier is None:
            return Refused(CommandFault.PROHIBITED)
        self._state.store.direct.set_minimum_priority(notifier.notifier_id, request.command.minimum)
        return Done()

    def _proven(
        self, execute: Callable[[SmpQueueRequest[P]], Response], request: SmpQueueRequest[P]
    ) -> Response:
        """Execute NDEL or DEL, and forward the packet, which needs neither the queue nor the notifier."""
        packet = request.command.packet
        former = self._ntf_router(request.queue) if packet is not None else None
        response = execute(request)
        self._outbox.dissociate(former, packet)
        return response

    def _ntf_router(self, queue: QueueRecord) -> RouterLocation | None:
        notifier = queue.notifier
        return None if notifier is None else self._outbox.ntf_router_of(notifier)

    def _answer_with_fate(
        self, request: SmpQueueRequest[C], notifier_id: bytes, pending: QueueAssociated | PacketStatus
    ) -> Response:
        """The NTF router's answer decides the fate in the response, if it comes soon enough."""
        packet = self._state.store.direct.packet_of(notifier_id)
        if packet is None:
            return replace(pending, fate=PacketFate.UNSUPPORTED)
        request.effects.append(AnswerWithFate(notifier_id, packet.packet_id))
        return pending
