"""What accepted commands and packets mean for an NTF router: a small model, made from what clients see alone.

It follows ntf.md and direct-notifications.md, and knows nothing of the router's code. `read_back_from` shows a store in
the same form.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.doubles.ntf_harness import Device
from tocsin.ntf_router.store.interface import WholeNtfStore
from tocsin.protocol.direct.packets import PacketFate, PacketKind
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.responses import QueueSubscribed, TokenRegistered
from tocsin.protocol.ntf.statuses import TokenState
from tocsin.protocol.ntf.subscription_commands import DeleteSubscription, NotifierQueue, SubscribeToQueue
from tocsin.protocol.ntf.token_commands import (
    DeleteToken,
    RegisterToken,
    ReplaceToken,
    SetPeriodicPush,
    VerifyToken,
)
from tocsin.protocol.router_answers import Refused


@dataclass
class ModelToken:
    device_token: DeviceToken
    key: bytes
    is_active: bool = False
    """A provider's answer decides whether a token that is not active is confirmed."""
    minutes: int = 0


@dataclass
class NtfModel:
    tokens: dict[bytes, ModelToken] = field(default_factory=dict)
    subscriptions: dict[bytes, tuple[bytes, str, bytes]] = field(default_factory=dict)
    """By subscription id: token id, queue, key."""
    associated: dict[str, bytes] = field(default_factory=dict)
    """Token id by queue, for queues of packets."""

    def has_active(self, device: Device) -> None:
        command = device.register_command()
        self.tokens[device.token_id] = ModelToken(command.token, command.verify_key.der, is_active=True)

    def note(self, command: Command, entity_id: bytes, answer: Response) -> None:
        """Take a command and what the router said."""
        if isinstance(answer, Refused):
            return
        match command:
            case RegisterToken():
                assert isinstance(answer, TokenRegistered)
                known = ModelToken(command.token, command.verify_key.der)
                self.tokens.setdefault(answer.token_id, known)
            case VerifyToken():
                self._activated(entity_id)
            case ReplaceToken(token=device_token):
                token = self.tokens[entity_id]
                token.device_token, token.is_active = device_token, False
            case SetPeriodicPush(minutes=minutes):
                self.tokens[entity_id].minutes = minutes
            case DeleteToken():
                self._forget(entity_id)
            case SubscribeToQueue(token_id=token_id, queue=queue, notifier_key=key):
                assert isinstance(answer, QueueSubscribed)
                self.associated.pop(queue.text(), None)
                self.subscriptions[answer.subscription_id] = token_id, queue.text(), key.der
            case DeleteSubscription():
                self._unsubscribe(entity_id)
            case _:
                pass

    def note_packet(self, kind: PacketKind, token_id: bytes, queue: NotifierQueue, fate: PacketFate) -> None:
        if fate is not PacketFate.ACCEPTED:
            return
        name = queue.text()
        for subscription_id, (_, of_queue, _) in list(self.subscriptions.items()):
            if of_queue == name:
                del self.subscriptions[subscription_id]
        if kind is PacketKind.ASSOCIATE:
            self.associated[name] = token_id
        else:
            self.associated.pop(name, None)

    def _activated(self, token_id: bytes) -> None:
        """Whoever has verified a device token is its only owner."""
        token = self.tokens[token_id]
        token.is_active = True
        for other in [
            each
            for each, known in self.tokens.items()
            if each != token_id and known.device_token == token.device_token
        ]:
            self._forget(other)

    def _unsubscribe(self, subscription_id: bytes) -> None:
        self.subscriptions.pop(subscription_id, None)

    def _forget(self, token_id: bytes) -> None:
        del self.tokens[token_id]
        self.subscriptions = {name: each for name, each in self.subscriptions.items() if each[0] != token_id}
        self.associated = {queue: owner for queue, owner in self.associated.items() if owner != token_id}


def read_back_from(store: WholeNtfStore) -> NtfModel:
    """What a store holds, in the form of the model."""
    found = NtfModel()
    for token in store.all_tokens():
        found.tokens[token.token_id] = ModelToken(
            token.device_token,
            token.verify_key,
            token.status.state is TokenState.ACTIVE,
            token.cron_minutes,
        )
    for each in store.all_subscriptions():
        if each.notifier_key:
            found.subscriptions[each.subscription_id] = each.token_id, each.queue.text(), each.notifier_key
        else:
            found.associated[each.queue.text()] = each.token_id
    return found
