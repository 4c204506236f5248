"""NSKEY, NPKT and NPRI, and what direct notifications add to NDEL and DEL."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import replace
from functools import partial

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
from tocsin.smp_router.session.work import Execute, RouterState, Task, tell_dropped


class DirectNotifiers:
    def __init__(self, state: RouterState, outbox: PacketOutbox) -> None:
        self._state = state
        self._outbox = outbox

    def handlers(self, *, disable: Execute, delete: Execute) -> dict[type[Command], Execute]:
        """`disable` and `delete` do what NDEL and DEL do without a packet."""
        return {
            AssociateQueue: self.associate,
            SendPacketAgain: self.send_again,
            SetMinimumPriority: self.set_minimum,
            DisableNotificationsProven: partial(self._proven, disable),
            DeleteQueueProven: partial(self._proven, delete),
        }

    def associate(self, task: Task) -> Response:
        """NSKEY: as NKEY, with an id of the client's, and nobody to subscribe but the NTF router that is told of it."""
        state, queue, command = self._state, task.queue, task.command
        assert queue is not None
        assert isinstance(command, AssociateQueue)
        wanted = command.subscription
        if not hmac.compare_digest(wanted.notifier_id, ids_for(task.corr_id).notifier_id):
            return Refused(CommandFault.PROHIBITED)
        if state.store.queue_by_notifier(wanted.notifier_id) is not None:
            return Refused(ErrorCode.AUTH)
        former = self._ntf_router(task) if command.replaced is not None else None
        if not self._outbox.has_room([wanted.ntf_router, *([] if former is None else [former])]):
            state.counters.packets_over_limit += 1
            return Refused(ErrorCode.QUOTA)
        notifier, dh_key = make_keyless_notifier(wanted, state.randomness)
        tell_dropped(state, queue.notifier)
        state.store.update_queue(replace(queue, notifier=notifier))
        if old := queue.notifier:
            state.subscriptions.delete_notifier(old.notifier_id, old.service_id, unless=task.peer)
        state.counters.notifiers_created += 1
        self._outbox.dissociate(former, command.replaced)
        state.store.direct.set_minimum_priority(notifier.notifier_id, wanted.minimum)
        self._outbox.associate(wanted.ntf_router, notifier.notifier_id, wanted.packet)
        return self._later(task, notifier.notifier_id, lambda fate: QueueAssociated(dh_key, fate))

    def send_again(self, task: Task) -> Response:
        """NPKT"""
        queue, command = task.queue, task.command
        assert queue is not None
        assert isinstance(command, SendPacketAgain)
        notifier = queue.notifier
        if notifier is None or not is_keyless(notifier):
            return Refused(CommandFault.PROHIBITED)
        if command.packet is None:
            fate = self._outbox.fate(notifier)
            return Refused(CommandFault.PROHIBITED) if fate is None else PacketStatus(fate)
        location = self._outbox.ntf_router_of(notifier)
        if location is None:  # forgotten: the client makes another notifier with NSKEY
            return Refused(CommandFault.PROHIBITED)
        waits = self._state.store.direct.packet_of(notifier.notifier_id) is not None
        if not waits and not self._outbox.has_room([location]):
            self._state.counters.packets_over_limit += 1
            return Refused(ErrorCode.QUOTA)
        self._outbox.associate(location, notifier.notifier_id, command.packet)
        return self._later(task, notifier.notifier_id, PacketStatus)

    def set_minimum(self, task: Task) -> Response:
        """NPRI"""
        queue, command = task.queue, task.command
        assert queue is not None
        assert isinstance(command, SetMinimumPriority)
        if queue.notifier is None:
            return Refused(CommandFault.PROHIBITED)
        self._state.store.direct.set_minimum_priority(queue.notifier.notifier_id, command.minimum)
        return Done()

    def _proven(self, execute: Execute, task: Task) -> Response:
        """NDEL and DEL, and then the packet, which needs neither queue nor notifier any more."""
        command = task.command
        assert isinstance(command, DisableNotificationsProven | DeleteQueueProven)
        former = self._ntf_router(task) if command.packet is not None else None
        response = execute(task)
        self._outbox.dissociate(former, command.packet)
        return response

    def _ntf_router(self, task: Task) -> RouterLocation | None:
        assert task.queue is not None
        notifier = task.queue.notifier
        return None if notifier is None else self._outbox.ntf_router_of(notifier)

    def _later(self, task: Task, notifier_id: bytes, answer: Callable[[PacketFate], Response]) -> Response:
        """The answer comes with that of the NTF router, or a bit later if that takes its time."""
        packet = self._state.store.direct.packet_of(notifier_id)
        if packet is None:
            return answer(PacketFate.UNSUPPORTED)

        async def wait() -> Response:
            return answer(await self._outbox.outcome(notifier_id, packet.packet_id))

        task.answered_later = wait
        return answer(PacketFate.PENDING)
