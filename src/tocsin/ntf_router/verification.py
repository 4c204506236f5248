"""Who may do what: from a received command to what it is about, or to AUTH (ntf.md 1.7, 4.3).

Whatever does not exist or may not be used costs the same work as a wrong signature: one check of one signature, with
a dummy key of the authorization's algorithm.
"""

from __future__ import annotations

from tocsin.crypto.keys import AuthPublicKey, auth_key_from_der
from tocsin.ntf_router.session.work import Authorized
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.records import TokenRecord
from tocsin.protocol.direct.ntf_messages import ForwardPacket
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


async def authorize(store: NtfStore, session: RouterSession, received: ReceivedCommand) -> Authorized | None:
    """None: AUTH. Raises `StoreError`."""
    match received.command:
        case Ping() | ForwardPacket():
            return Authorized()
        case RegisterToken(verify_key=key):
            return _checked(session, received, key, Authorized())
        case SubscribeToQueue() as command:
            token = await store.token(command.token_id)
            existing = await store.subscription_of(command.queue)
            usable = token is not None and token.status.state not in _BEFORE_ACTIVE
            if existing is not None and existing.token_id != command.token_id:
                usable = False
            return _checked(session, received, _key(token, usable), Authorized(token, existing))
        case CheckSubscription() | DeleteSubscription():
            found = await store.subscription(received.entity_id)
            if found is None:
                return _checked(session, received, None, Authorized())
            subscription, token = found
            usable = token.status.state not in _BEFORE_ACTIVE
            return _checked(session, received, _key(token, usable), Authorized(token, subscription))
        case _:
            token = await store.token(received.entity_id)
            return _checked(session, received, _key(token, True), Authorized(token))


def _key(token: TokenRecord | None, usable: bool) -> AuthPublicKey | None:
    return auth_key_from_der(token.verify_key) if token is not None and usable else None


def _checked(
    session: RouterSession, received: ReceivedCommand, key: AuthPublicKey | None, found: Authorized
) -> Authorized | None:
    if key is None:
        session.pretend_to_verify(received)
        return None
    return found if session.verifies(received, key) else None
