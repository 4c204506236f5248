"""Tokens, subscriptions and notifications for tests of NTF stores."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from tests.doubles.registered_tokens import add_token
from tocsin.crypto.keys import Ed25519PrivateKey, Ed25519PublicKey
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.records import (
    PendingNotification,
    ReceivedNotification,
    SettledNotification,
    SubscriptionRecord,
    TokenRecord,
)
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import notification_text
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

ACTIVE = TokenStatus(TokenState.ACTIVE)
REGISTERED = TokenStatus(TokenState.REGISTERED)
CONFIRMED = TokenStatus(TokenState.CONFIRMED)

ROUTER = RouterLocation(("smp.example.com", "abc.onion"), "", bytes(range(32)))
OTHER_ROUTER = RouterLocation(("::1",), "5224", bytes(32))


def filler(name: object, count: int) -> bytes:
    """The same bytes for the same name."""
    return hashlib.shake_128(repr(name).encode()).digest(count)


def device_token(name: object, provider: PushProvider = PushProvider.APNS_PROD) -> DeviceToken:
    return DeviceToken(provider, filler(("device", name), 32).hex().encode())


def token(name: object, device: DeviceToken | None = None, **changes: Any) -> TokenRecord:
    made = TokenRecord(
        filler(("token", name), 24),
        device or device_token(name),
        ACTIVE,
        Ed25519PublicKey.der_prefix + filler(("key", name), 32),
        filler(("dh", name), 32),
        filler(("secret", name), 32),
        filler(("code", name), 32),
        registered_at=1_700_000_000,
        updated_at=1_699_920_000,
    )
    return replace(made, **changes)


def queue(name: object, router: RouterLocation = ROUTER) -> NotifierQueue:
    return NotifierQueue(router, filler(("notifier", name), 24))


def subscription(
    name: object, owner: TokenRecord, router: RouterLocation = ROUTER, **changes: Any
) -> SubscriptionRecord:
    made = SubscriptionRecord(
        filler(("subscription", name), 24),
        owner.token_id,
        queue(name, router),
        Ed25519PrivateKey.der_prefix + filler(("notifier key", name), 32),
        SubscriptionState.NEW,
    )
    return replace(made, **changes)


def received(name: object, nonce: object = 0, at: float = 1000.5) -> ReceivedNotification:
    """Of the queue of that name."""
    notifier_id = filler(("notifier", name), 24)
    return ReceivedNotification(notifier_id, filler(("nonce", nonce), 24), filler(("meta", nonce), 144), at)


def settled(
    owner: TokenRecord, name: object, nonce: object = 0, outcome: str = "accepted"
) -> SettledNotification:
    subscription_id = filler(("subscription", name), 24)
    return SettledNotification(
        owner.token_id, subscription_id, filler(("nonce", nonce), 24), outcome, queue(name)
    )


def pending(came: ReceivedNotification, subscribed: SubscriptionRecord) -> PendingNotification:
    """As it is due."""
    text = notification_text(subscribed.queue, int(came.received_at), came.nonce, came.sealed_meta)
    return PendingNotification(
        came.received_at, came.nonce, text, subscribed.subscription_id, subscribed.queue
    )


async def filled(store: NtfStore, name: object, *queues: object, **changes: Any) -> TokenRecord:
    """A token with subscriptions."""
    owner = token(name, **changes)
    assert await add_token(store, owner)
    for each in queues:
        assert await store.add_subscription(subscription(each, owner))
    return owner
