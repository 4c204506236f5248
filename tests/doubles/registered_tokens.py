"""Registrations in a store of an NTF router, without the commands that bring them there."""

from __future__ import annotations

from tocsin.ntf_router.store.interface import Registered, TokenStore
from tocsin.ntf_router.store.records import TokenRecord
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus

_NO_LIMIT = 1 << 30
_REGISTERED = TokenStatus(TokenState.REGISTERED)


async def add_token(store: TokenStore, token: TokenRecord) -> bool:
    """Returns False if its key has registered its device token before, or its id is taken."""
    return await store.register(token, since=0, most=_NO_LIMIT) is Registered.DONE


async def registration(store: TokenStore, device_token: DeviceToken, verify_key: bytes) -> TokenRecord | None:
    """Return the registration of a device token by a key. With a limit of no registrations, nothing is added."""
    asked = TokenRecord(bytes(24), device_token, _REGISTERED, verify_key, bytes(32), bytes(32), bytes(32))
    found = await store.register(asked, since=0, most=0)
    if found is Registered.QUOTA:
        return None
    assert isinstance(found, TokenRecord)
    return found
