"""Verification: from a received command to a request, or to AUTH (ntf.md 1.7, 4.3).

A token or subscription that does not exist costs the same work as a wrong signature: one check of one signature, with a
dummy key of the authorization's algorithm.
"""

from __future__ import annotations

from tocsin.crypto.keys import AuthPublicKey, auth_key_from_der
from tocsin.ntf_router.session.requests import (
    NewSubscriptionRequest,
    NtfRequest,
    SubscriptionRequest,
    TokenRequest,
)
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.records import TokenRecord
from tocsin.protocol.direct.ntf_messages import ForwardPacket
from tocsin.protocol.direct.vapid_keys import AskVapidKey
from tocsin.protocol.messages import Command
from tocsin.protocol.ntf.statuses import TokenState
from tocsin.protocol.ntf.subscription_commands import (
    CheckSubscription,
    DeleteSubscription,
    SubscribeToQueue,
)
from tocsin.protocol.ntf.token_commands import RegisterToken
from tocsin.protocol.ping import Ping
from tocsin.protocol.sessions import ReceivedCommand, RouterSession

_BEFORE_ACTIVE = (TokenState.NEW, TokenState.REGISTERED, TokenState.CONFIRMED)
"""Tokens in these states have no subscriptions yet."""


async def verify(
    store: NtfStore, session: RouterSession, received: ReceivedCommand
) -> NtfRequest[Command] | None:
    """Return the verified request, or None for AUTH. Raises StoreError."""
    match received.command:
        case Ping() | ForwardPacket() | AskVapidKey() as command:
            return NtfRequest(received, command)
        case RegisterToken(verify_key=key) as command:
            return NtfRequest(received, command) if _verifies(session, received, key) else None
        case SubscribeToQueue() as command:
            token, existing, others = await store.queue_facts(command.token_id, command.queue)
            usable = token is not None and token.status.state not in _BEFORE_ACTIVE
            if existing is not None and existing.token_id != command.token_id:
                usable = False
            if not _verifies(session, received, _key(token, usable)) or token is None:
                return None
            return NewSubscriptionRequest(received, command, token, existing, others)
        case (CheckSubscription() | DeleteSubscription()) as command:
            found = await store.subscription(received.entity_id)
            owner = None if found is None else found[1]
            usable = owner is not None and owner.status.state not in _BEFORE_ACTIVE
            if not _verifies(session, received, _key(owner, usable)) or found is None:
                return None
            subscription, token = found
            return SubscriptionRequest(received, command, token, subscription)
        case command:
            token = await store.token(received.entity_id)
            if not _verifies(session, received, _key(token, usable=True)) or token is None:
                return None
            return TokenRequest(received, command, token)


def _key(token: TokenRecord | None, usable: bool) -> AuthPublicKey | None:
    return auth_key_from_der(token.verify_key) if token is not None and usable else None


def _verifies(session: RouterSession, received: ReceivedCommand, key: AuthPublicKey | None) -> bool:
    if key is None:
        session.pretend_to_verify(received)
        return False
    return session.verifies(received, key)
