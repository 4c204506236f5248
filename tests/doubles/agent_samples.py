"""Records of an agent, for tests of its stores."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from tocsin.agent.store.records import (
    AgentSubscription,
    AgentToken,
    CheckDue,
    EndpointSecret,
    NextAction,
    NotificationMode,
    QueueNotifier,
    ReceiveQueue,
    SendQueue,
    SubscriptionPhase,
)
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

SMP = RouterLocation(("smp.example.com",), "5223", bytes(32))
OTHER_SMP = RouterLocation(("other.example.com", "abc.onion"), "", bytes(31) + b"\1")
NTF = RouterLocation(("ntf.example.com",), "", bytes(31) + b"\2")
OTHER_NTF = RouterLocation(("ntf2.example.com",), "8443", bytes(31) + b"\3")
DEVICE = DeviceToken(PushProvider.APNS_TEST, b"0123abcd")
NOTIFIER = QueueNotifier(b"n" * 24, b"notifier key", b"notifier secret")
ENDPOINT = EndpointSecret(DeviceToken(PushProvider.WEBPUSH, b"keys and endpoint"), b"endpoint secret")


def receive_queue(connection_id: str, number: int = 1, **changes: Any) -> ReceiveQueue:
    queue = ReceiveQueue(
        connection_id, number, SMP, os.urandom(24), b"the key", b"the secret", os.urandom(24), os.urandom(32)
    )
    return replace(queue, **changes)


def send_queue(connection_id: str, number: int = 1, **changes: Any) -> SendQueue:
    return replace(
        SendQueue(connection_id, number, SMP, os.urandom(24), b"send key", os.urandom(32)), **changes
    )


def agent_token(**changes: Any) -> AgentToken:
    token = AgentToken(
        DEVICE,
        NTF,
        b"token key",
        b"d" * 32,
        TokenStatus(TokenState.ACTIVE),
        CheckDue(),
        NotificationMode.INSTANT,
        b"t" * 24,
        b"s" * 32,
    )
    return replace(token, **changes)


def subscription(connection_id: str, **changes: Any) -> AgentSubscription:
    new = AgentSubscription(connection_id, SMP, NTF, SubscriptionPhase.NEW, NextAction.CREATE_KEYS, 100.0)
    return replace(new, **changes)


def named(queue: ReceiveQueue) -> NotifierQueue:
    """As a notification names it."""
    assert queue.notifier is not None
    return NotifierQueue(queue.router, queue.notifier.notifier_id)
