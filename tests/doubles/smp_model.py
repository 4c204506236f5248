"""What accepted commands mean for an SMP router: a small model, made from commands and answers alone.

It follows smp.md and direct-notifications.md, and knows nothing of the router's code. `read_back_from` shows a store in
the same form.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.smp_commands import (
    AssociateQueue,
    CreateNotifyingQueue,
    RegisterNtfRouter,
    SetMinimumPriority,
)
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.smp import recipient_commands as recipient
from tocsin.protocol.smp.queue_modes import QueueMode
from tocsin.protocol.smp.responses import NotificationsEnabled, QueueCreated
from tocsin.protocol.smp.sender_commands import SecureLinkedQueue, SecureQueueBySender, SendMessage
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import QueueStatus

FULL = None
"""In place of a message: the marker of a queue that was full."""


@dataclass
class ModelQueue:
    sender_id: bytes
    keys: list[bytes]
    mode: QueueMode | None
    sender_key: bytes | None = None
    link: tuple[bytes, bytes, bytes] | None = None
    """Id, fixed part, user's part."""
    notifier_id: bytes | None = None
    minimum: MinimumPriority = MinimumPriority.ALL
    is_off: bool = False
    messages: list[bytes | None] = field(default_factory=list)

    def notify(self, notifier_id: bytes | None, minimum: MinimumPriority = MinimumPriority.ALL) -> None:
        self.notifier_id, self.minimum = notifier_id, minimum

    def secure(self, key: bytes) -> None:
        self.sender_key = key


class SmpModel:
    def __init__(self) -> None:
        self.queues: dict[bytes, ModelQueue] = {}
        self.ntf_routers: dict[str, int] = {}
        """When the key of each NTF router was issued, by its location."""

    def note(self, command: Command, entity_id: bytes, answer: Response) -> None:
        """Take a command and what the router said."""
        if isinstance(answer, Refused):
            self._refused(command, entity_id, answer)
        elif isinstance(command, recipient.CreateQueue):
            assert isinstance(answer, QueueCreated)
            self._created(command, answer)
        elif isinstance(command, RegisterNtfRouter):
            location, issued_at = str(command.credentials.location), command.credentials.issued_at
            self.ntf_routers[location] = max(issued_at, self.ntf_routers.get(location, 0))
        elif (found := self._find(command, entity_id)) is not None:
            self._changed(command, *found, answer)

    def _find(self, command: Command, entity_id: bytes) -> tuple[bytes, ModelQueue] | None:
        by_sender = isinstance(command, SendMessage | SecureQueueBySender)
        for recipient_id, queue in self.queues.items():
            if isinstance(command, SecureLinkedQueue):
                same = queue.link is not None and queue.link[0] == entity_id
            else:
                same = entity_id == (queue.sender_id if by_sender else recipient_id)
            if same:
                return recipient_id, queue
        return None

    def _created(self, command: recipient.CreateQueue, answer: QueueCreated) -> None:
        request = command.request
        queue = ModelQueue(
            answer.sender_id, [command.auth_key.der], None if request is None else request.mode
        )
        if request is not None and request.link is not None:
            assert answer.link_id is not None
            queue.link = answer.link_id, request.link.data.fixed, request.link.data.user
        direct = command.direct if isinstance(command, CreateNotifyingQueue) else None
        if direct is not None:
            queue.notify(direct.notifier_id, direct.minimum)
        elif answer.notifier is not None:
            queue.notify(answer.notifier.notifier_id)
        self.queues[answer.recipient_id] = queue

    def _refused(self, command: Command, entity_id: bytes, answer: Refused) -> None:
        """A queue that is full notes so, once."""
        if isinstance(command, SendMessage) and answer.error is ErrorCode.QUOTA:
            found = self._find(command, entity_id)
            assert found is not None
            if found[1].messages[-1] is not FULL:
                found[1].messages.append(FULL)

    def _changed(self, command: Command, recipient_id: bytes, queue: ModelQueue, answer: Response) -> None:
        match command:
            case recipient.SecureQueue(sender_key=key):
                queue.secure(key.der)
            case SecureQueueBySender(sender_key=key) | SecureLinkedQueue(sender_key=key):
                queue.secure(key.der)
            case recipient.ReplaceRecipientKeys(keys=keys):
                queue.keys = [key.der for key in keys]
            case recipient.SetLinkData(link_id=link_id, data=data):
                queue.link = link_id, data.fixed, data.user
            case recipient.DeleteLinkData():
                queue.link = None
            case recipient.EnableNotifications():
                assert isinstance(answer, NotificationsEnabled)
                queue.notify(answer.notifier.notifier_id)
            case AssociateQueue(subscription=wanted):
                queue.notify(wanted.notifier_id, wanted.minimum)
            case SetMinimumPriority(minimum=minimum):
                queue.minimum = minimum
            case recipient.DisableNotifications():  # NDEL of direct notifications too
                queue.notify(None)
            case recipient.SuspendQueue():
                queue.is_off = True
            case recipient.DeleteQueue():  # DEL of direct notifications too
                del self.queues[recipient_id]
            case recipient.AcknowledgeMessage(message_id=message_id) if message_id:
                queue.messages.pop(0)
            case SendMessage(body=body):
                queue.messages.append(body)
                if queue.mode is QueueMode.MESSAGING and queue.sender_key is not None:
                    queue.link = None  # an invitation is used once
            case _:
                pass


def read_back_from(store: SmpMemoryStore) -> SmpModel:
    """What a store holds, in the form of the model."""
    found = SmpModel()
    for record in store.queues():
        assert isinstance(record.status, QueueStatus)
        queue = found.queues[record.recipient_id] = ModelQueue(
            record.sender_id, list(record.recipient_keys), record.mode, record.sender_key
        )
        if record.link is not None:
            queue.link = record.link.link_id, record.link.data.fixed, record.link.data.user
        if record.notifier is not None:
            notifier_id = record.notifier.notifier_id
            queue.notify(notifier_id, store.direct.minimum_priority(notifier_id))
        queue.is_off = record.status is QueueStatus.OFF
        queue.messages = [message.body for message in store.messages(record.recipient_id)]
    for router in store.direct.ntf_routers():
        found.ntf_routers[str(router.location)] = router.issued_at
    return found
