"""N1: what a refused command costs: the same cryptography, whatever is wrong with it (ntf.md 1.7)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import pytest

from tests.doubles.cryptographic_work import work
from tests.doubles.registered_tokens import add_token
from tests.doubles.smp_harness import ed448, ed25519, x25519
from tocsin.crypto.keys import AuthPrivateKey, X25519PrivateKey
from tocsin.ntf_router.session.verification import verify
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.records import SubscriptionRecord, TokenRecord
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.messages import Command
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import (
    CheckSubscription,
    DeleteSubscription,
    NotifierQueue,
    SubscribeToQueue,
)
from tocsin.protocol.ntf.token_commands import (
    CheckToken,
    DeleteToken,
    ReplaceToken,
    SetPeriodicPush,
    VerifyToken,
)
from tocsin.protocol.sessions import BlockCoder, ClientSession, ReceivedCommand, RouterSession

__all__ = ["work"]  # a fixture

TOKEN, UNVERIFIED, SUBSCRIPTION, MISSING = b"t" * 24, b"u" * 24, b"s" * 24, b"m" * 24
SESSION_KEY: Final = X25519PrivateKey(b"\x02" * 32)
ROUTER: Final = RouterLocation(("smp.example.com",), "", bytes(32))
QUEUE: Final = NotifierQueue(ROUTER, b"n" * 24)
DEVICE: Final = DeviceToken(PushProvider.APNS_TEST, b"abcd")

MakeKey = Callable[[], AuthPrivateKey]
KEYS: Final[dict[str, MakeKey]] = {"25519": ed25519, "448": ed448, "X": x25519}
WORK: Final = {"25519": ["Ed25519"], "448": ["Ed448"], "X": ["X25519", "authenticator"]}

ABOUT_TOKENS: Final[dict[str, Command]] = {
    "TVFY": VerifyToken(bytes(32)),
    "TCHK": CheckToken(),
    "TRPL": ReplaceToken(DEVICE),
    "TDEL": DeleteToken(),
    "TCRN": SetPeriodicPush(20),
}
ABOUT_SUBSCRIPTIONS: Final[dict[str, Command]] = {"SCHK": CheckSubscription(), "SDEL": DeleteSubscription()}


async def filled(key: AuthPrivateKey) -> NtfMemoryStore:
    store = NtfMemoryStore()
    secrets = (bytes(32), bytes(32), bytes(32))
    for token_id, device_token, state in (
        (TOKEN, b"abcd", TokenState.ACTIVE),
        (UNVERIFIED, b"efgh", TokenState.CONFIRMED),
    ):
        device = DeviceToken(PushProvider.APNS_TEST, device_token)
        await add_token(store, TokenRecord(token_id, device, TokenStatus(state), key.public.der, *secrets))
    await store.add_subscription(
        SubscriptionRecord(SUBSCRIPTION, TOKEN, QUEUE, ed25519().der, SubscriptionState.ACTIVE)
    )
    return store


class Session:
    """Both ends of one."""

    def __init__(self) -> None:
        plain = BlockCoder(NTF.block_size)
        self._client = ClientSession(NTF, 3, b"\x01" * 32, plain, SESSION_KEY.public)
        self.router = RouterSession(NTF, 3, b"\x01" * 32, plain, SESSION_KEY)

    def received(self, command: Command, entity_id: bytes, key: AuthPrivateKey) -> ReceivedCommand:
        request = self._client.request(os.urandom(24), entity_id, command, key)
        received = self.router.read_transmission(request)
        assert isinstance(received, ReceivedCommand), received
        return received


@pytest.mark.parametrize("used", KEYS)
@pytest.mark.parametrize("token_key", KEYS)
async def test_N01_every_refusal_costs_one_verification_of_the_used_algorithm(
    token_key: str, used: str, work: list[str]
) -> None:
    store = await filled(KEYS[token_key]())
    wrong = KEYS[used]()
    session = Session()

    async def cost(command: Command, entity_id: bytes) -> list[str]:
        received = session.received(command, entity_id, wrong)
        work.clear()
        assert await verify(store, session.router, received) is None
        return list(work)

    for command in ABOUT_TOKENS.values():
        for entity_id in (TOKEN, SUBSCRIPTION, MISSING):
            assert await cost(command, entity_id) == WORK[used]
    for command in ABOUT_SUBSCRIPTIONS.values():
        for entity_id in (SUBSCRIPTION, TOKEN, MISSING):
            assert await cost(command, entity_id) == WORK[used]
    other_queue = NotifierQueue(ROUTER, b"o" * 24)
    for token_id in (TOKEN, UNVERIFIED, MISSING):
        for queue in (QUEUE, other_queue):
            assert await cost(SubscribeToQueue(token_id, queue, ed25519()), b"") == WORK[used]


@pytest.mark.parametrize("kind", KEYS)
async def test_N01_a_token_that_may_not_subscribe_costs_the_same(kind: str, work: list[str]) -> None:
    """With the right key: a token that is not verified yet, and a queue that belongs to another token."""
    key = KEYS[kind]()
    store = await filled(key)
    session = Session()
    for token_id, queue in ((UNVERIFIED, NotifierQueue(ROUTER, b"o" * 24)), (UNVERIFIED, QUEUE)):
        received = session.received(SubscribeToQueue(token_id, queue, ed25519()), b"", key)
        work.clear()
        assert await verify(store, session.router, received) is None
        assert work == WORK[kind]
    received = session.received(SubscribeToQueue(TOKEN, QUEUE, ed25519()), b"", key)
    assert await verify(store, session.router, received) is not None
