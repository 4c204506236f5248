"""Every event in every state does to a token and to a subscription what the tables say, in each store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.doubles.registered_tokens import add_token
from tests.unit.ntf_router.store.opened_stores import KINDS, opened_store
from tests.unit.ntf_router.store.samples import ROUTER, device_token, filler, subscription, token
from tocsin.events import queue_exports
from tocsin.ntf_router.store.interface import NtfStore, WantedPage
from tocsin.ntf_router.store.records import TokenRecord
from tocsin.protocol.ntf.lifecycles import (
    SUBSCRIPTION_CHANGES,
    TOKEN_CHANGES,
    WANTED,
    SubscriptionEvent,
    TokenEvent,
)
from tocsin.protocol.ntf.statuses import InvalidReason, SubscriptionState, TokenState, TokenStatus

OF_THE_SERVICE = (SubscriptionEvent.SERVICE_LOST,)


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[NtfStore]:
    async with opened_store(request) as opened:
        yield opened


async def happens_to_token(store: NtfStore, event: TokenEvent, record: TokenRecord) -> None:
    match event:
        case TokenEvent.REGISTERED_AGAIN:
            await store.register_again(record.token_id, 2000)
        case TokenEvent.CONFIRMED:
            await store.confirm_token(record.token_id)
        case TokenEvent.VERIFIED:
            await store.activate_token(record.token_id, record.code)
        case TokenEvent.REPLACED:
            await store.replace_token(record.token_id, device_token("next"), filler("code", 32), 2000)
        case TokenEvent.REFUSED:
            status = TokenStatus(TokenState.INVALID, InvalidReason.UNREGISTERED)
            await store.invalidate_token(record.token_id, record.device_token, status)


async def happens_to_subscription(store: NtfStore, event: SubscriptionEvent, notifier_id: bytes) -> None:
    match event:
        case SubscriptionEvent.ASKED_FOR:
            await store.queues_to_subscribe(ROUTER, WantedPage(None, 10, with_associated=True))
        case SubscriptionEvent.SUBSCRIBED:
            await store.subscribed(ROUTER, [notifier_id], None)
        case SubscriptionEvent.UNAUTHORIZED:
            await store.set_statuses(ROUTER, [(notifier_id, SubscriptionState.AUTH)])
        case SubscriptionEvent.SERVICE_REFUSED:
            await store.set_statuses(ROUTER, [(notifier_id, SubscriptionState.SERVICE)])
        case SubscriptionEvent.ENDED:
            await store.set_statuses(ROUTER, [(notifier_id, SubscriptionState.END)])
        case SubscriptionEvent.DELETED:
            await store.set_statuses(ROUTER, [(notifier_id, SubscriptionState.DELETED)])
        case SubscriptionEvent.DISCONNECTED:
            await store.disconnected(ROUTER)
        case SubscriptionEvent.SERVICE_LOST:
            await store.forget_service(ROUTER)


@pytest.mark.parametrize("event", TokenEvent, ids=lambda event: event.name)
async def test_events_of_tokens(store: NtfStore, event: TokenEvent) -> None:
    found = {}
    for state in TokenState:
        record = token(state, status=TokenStatus(state))
        assert await add_token(store, record)
        await happens_to_token(store, event, record)
        after = await store.token(record.token_id)
        assert after is not None
        found[state] = after.status.state
        await store.delete_token(record.token_id)

    assert found == {state: TOKEN_CHANGES[event].get(state, state) for state in TokenState}


@pytest.mark.parametrize("event", SubscriptionEvent, ids=lambda event: event.name)
async def test_events_of_subscriptions(store: NtfStore, event: SubscriptionEvent) -> None:
    owner = token("owner", status=TokenStatus(TokenState.ACTIVE))
    assert await add_token(store, owner)
    found = {}
    for state in SubscriptionState:
        record = subscription(state, owner, status=state, service_associated=event in OF_THE_SERVICE)
        assert await store.add_subscription(record)
        await happens_to_subscription(store, event, record.queue.notifier_id)
        after = await store.subscription(record.subscription_id)
        assert after is not None
        found[state] = after[0].status
        await store.delete_subscription(record.subscription_id)

    assert found == {state: SUBSCRIPTION_CHANGES[event].get(state, state) for state in SubscriptionState}


def test_exports_want_the_same_states() -> None:
    assert queue_exports.WANTED == WANTED
