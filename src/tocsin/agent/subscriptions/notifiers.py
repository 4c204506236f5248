"""Requests for a new notifier of a queue, and the notifier that an answer creates."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias

from tocsin.agent.runtime.randomness import new_dh_key, new_key
from tocsin.agent.store.records import QueueNotifier, ReceiveQueue
from tocsin.agent.subscriptions.answers import error_of
from tocsin.agent.subscriptions.packets import Packets
from tocsin.clients import Request
from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey, X25519PublicKey, private_key_from_der
from tocsin.errors import BadKey, TocsinError, UnexpectedResponse
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.queue_ids import ids_for
from tocsin.protocol.direct.smp_commands import AssociateQueue, NtfSubscription
from tocsin.protocol.direct.smp_responses import QueueAssociated
from tocsin.protocol.messages import Response
from tocsin.protocol.smp.queue_modes import NotifierKeys
from tocsin.protocol.smp.recipient_commands import EnableNotifications
from tocsin.protocol.smp.responses import NotificationsEnabled

_CORR_ID_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class KeyedNotifierRequest:
    """NKEY: a notifier with a key, which the NTF router gets."""

    key: Ed25519PrivateKey = field(default_factory=new_key, repr=False)
    dh_key: X25519PrivateKey = field(default_factory=new_dh_key, repr=False)

    def request(self, queue: ReceiveQueue) -> Request:
        command = EnableNotifications(self.keys)
        return Request(command, queue.recipient_id, private_key_from_der(queue.key))

    @property
    def keys(self) -> NotifierKeys:
        return NotifierKeys(self.key.public, self.dh_key.public)

    def created(self, outcome: Response | TocsinError) -> QueueNotifier | TocsinError:
        if not isinstance(outcome, NotificationsEnabled):
            return error_of(outcome)
        return self.notifier(outcome.notifier.notifier_id, outcome.notifier.dh_key)

    def notifier(self, notifier_id: bytes, dh_key: X25519PublicKey) -> QueueNotifier | TocsinError:
        try:
            return QueueNotifier(notifier_id, self.key.der, self.dh_key.agree(dh_key))
        except BadKey as error:
            return error


@dataclass(frozen=True, slots=True)
class DirectNotifierRequest:
    """NSKEY: a notifier with an id that we choose, and a packet for the NTF router. Created by `sealed`."""

    corr_id: bytes = field(repr=False)
    """The notifier id follows from it."""
    subscription: NtfSubscription
    dh_key: X25519PrivateKey = field(repr=False)

    @classmethod
    def sealed(cls, packets: Packets, router: RouterLocation, minimum: MinimumPriority) -> Self | None:
        """Return None if the SMP router's hosts do not fit into a packet."""
        corr_id, dh_key = os.urandom(_CORR_ID_BYTES), new_dh_key()
        notifier_id = ids_for(corr_id).notifier_id
        packet = packets.associate(router, notifier_id)
        if packet is None:
            return None
        wanted = NtfSubscription(dh_key.public, packets.ntf_router, notifier_id, minimum, packet)
        return cls(corr_id, wanted, dh_key)

    def request(self, queue: ReceiveQueue, replaced: bytes | None) -> Request:
        """Make the request. The packet `replaced` ends the association of the queue's present notifier."""
        command = AssociateQueue(self.subscription, replaced)
        return Request(command, queue.recipient_id, private_key_from_der(queue.key), self.corr_id)

    def created(self, outcome: Response | TocsinError) -> tuple[QueueNotifier, PacketFate] | TocsinError:
        if not isinstance(outcome, QueueAssociated):
            return error_of(outcome)
        notifier = self.notifier(self.subscription.notifier_id, outcome.dh_key)
        return notifier if isinstance(notifier, TocsinError) else (notifier, outcome.fate)

    def notifier(self, notifier_id: bytes, dh_key: X25519PublicKey) -> QueueNotifier | TocsinError:
        """Return an error if the router chose another id than the requested one."""
        if notifier_id != self.subscription.notifier_id:
            return UnexpectedResponse(
                "the SMP router created a notifier with another id than the requested one"
            )
        try:
            return QueueNotifier(notifier_id, None, self.dh_key.agree(dh_key), self.subscription.minimum)
        except BadKey as error:
            return error


NotifierRequest: TypeAlias = KeyedNotifierRequest | DirectNotifierRequest
