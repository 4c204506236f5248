"""Data behind short links (smp.md 6.6: LSET, LDEL, LKEY, LGET)."""

from __future__ import annotations

import hmac
from dataclasses import replace

from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.smp.queue_modes import QueueMode
from tocsin.protocol.smp.recipient_commands import DeleteLinkData, SetLinkData
from tocsin.protocol.smp.responses import LinkContent
from tocsin.protocol.smp.sender_commands import GetLinkData, SecureLinkedQueue
from tocsin.smp_router.queues import set_sender_key
from tocsin.smp_router.session.work import Execute, RouterState, Task
from tocsin.smp_router.store.records import QueueLink, QueueRecord


def link_handlers(state: RouterState) -> dict[type[Command], Execute]:
    links = Links(state)
    return {
        SetLinkData: links.set,
        DeleteLinkData: links.delete,
        SecureLinkedQueue: links.secure,
        GetLinkData: links.get,
    }


class Links:
    def __init__(self, state: RouterState) -> None:
        self._state = state

    def set(self, task: Task) -> Response:
        """LSET: the link id and the fixed part are set once and for all."""
        queue, command = task.queue, task.command
        assert queue is not None
        assert isinstance(command, SetLinkData)
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

    def delete(self, task: Task) -> Response:
        """LDEL"""
        assert task.queue is not None
        remove_link(self._state, task.queue)
        return Done()

    def secure(self, task: Task) -> Response:
        """LKEY: as SKEY, and returns the data."""
        queue = task.queue
        assert queue is not None
        assert isinstance(task.command, SecureLinkedQueue)
        if queue.link is None or queue.mode is not QueueMode.MESSAGING:
            return Refused(ErrorCode.AUTH)
        if not set_sender_key(self._state, task, task.command):
            return Refused(ErrorCode.AUTH)
        self._state.counters.links_read += 1
        return LinkContent(queue.sender_id, queue.link.data)

    def get(self, task: Task) -> Response:
        """LGET: for contact addresses; a one-time invitation is read with LKEY."""
        queue = task.queue
        assert queue is not None
        open_to_all = queue.mode is QueueMode.CONTACT or (queue.mode is None and queue.sender_key is None)
        if queue.link is None or not open_to_all:
            return Refused(ErrorCode.AUTH)
        self._state.counters.links_read += 1
        return LinkContent(queue.sender_id, queue.link.data)


def remove_link(state: RouterState, queue: QueueRecord) -> None:
    if queue.link is not None:
        state.store.update_queue(replace(queue, link=None))
