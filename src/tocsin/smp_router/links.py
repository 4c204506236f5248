"""Data behind short links (smp.md 6.6: LSET, LDEL, LKEY, LGET)."""

from __future__ import annotations

import hmac
from dataclasses import replace

from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.messages import Response
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.smp.queue_modes import QueueMode
from tocsin.protocol.smp.recipient_commands import DeleteLinkData, SetLinkData
from tocsin.protocol.smp.responses import LinkContent
from tocsin.protocol.smp.sender_commands import GetLinkData, SecureLinkedQueue
from tocsin.smp_router.queues import remove_link, set_sender_key
from tocsin.smp_router.session.requests import SmpCommandTable, SmpQueueRequest, SmpState
from tocsin.smp_router.store.records import QueueLink


class LinkCommands:
    """LSET, LDEL, LKEY and LGET."""

    def __init__(self, state: SmpState) -> None:
        self._state = state

    def add_to(self, table: SmpCommandTable) -> None:
        table.add_for_queue(SetLinkData, self.set)
        table.add_for_queue(DeleteLinkData, self.delete)
        table.add_for_queue(SecureLinkedQueue, self.secure)
        table.add_for_queue(GetLinkData, self.get)

    def set(self, request: SmpQueueRequest[SetLinkData]) -> Response:
        """LSET: the link id and the fixed part never change once they are set."""
        queue, command = request.queue, request.command
        if queue.sender_key is not None and queue.mode is not QueueMode.CONTACT:
            return Refused(ErrorCode.AUTH)
        link = queue.link
        if link is not None and not (
            hmac.compare_digest(link.link_id, command.link_id) and link.data.fixed == command.data.fixed
        ):
            return Refused(ErrorCode.AUTH)
        changed = replace(queue, link=QueueLink(command.link_id, command.data))
        if not self._state.store.update_queue(changed):
            return Refused(ErrorCode.AUTH)
        self._state.counters.links_set += 1
        return Done()

    def delete(self, request: SmpQueueRequest[DeleteLinkData]) -> Response:
        """LDEL"""
        remove_link(self._state, request.queue)
        return Done()

    def secure(self, request: SmpQueueRequest[SecureLinkedQueue]) -> Response:
        """LKEY: like SKEY, and returns the data."""
        queue = request.queue
        if queue.link is None or queue.mode is not QueueMode.MESSAGING:
            return Refused(ErrorCode.AUTH)
        if not set_sender_key(self._state, queue, request.command):
            return Refused(ErrorCode.AUTH)
        self._state.counters.links_read += 1
        return LinkContent(queue.sender_id, queue.link.data)

    def get(self, request: SmpQueueRequest[GetLinkData]) -> Response:
        """LGET: for contact addresses. A one-time invitation is read with LKEY."""
        queue = request.queue
        open_to_all = queue.mode is QueueMode.CONTACT or (queue.mode is None and queue.sender_key is None)
        if queue.link is None or not open_to_all:
            return Refused(ErrorCode.AUTH)
        self._state.counters.links_read += 1
        return LinkContent(queue.sender_id, queue.link.data)
