"""Subscribing to the notifications of queues (ntf.md 4.3)."""

from __future__ import annotations

import hmac
from typing import Final

from tocsin.ntf_router.session.work import RouterState, counts
from tocsin.ntf_router.store.records import SubscriptionRecord, TokenRecord
from tocsin.protocol.error_codes import ErrorCode, StoreFault
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.responses import QueueSubscribed, SubscriptionChecked
from tocsin.protocol.ntf.statuses import SubscriptionState, SubscriptionStatus
from tocsin.protocol.ntf.subscription_commands import SubscribeToQueue
from tocsin.protocol.router_answers import Done, Refused

_AUTH: Final = Refused(ErrorCode.AUTH)


class Subscriptions:
    """Each method takes a command that is authorized."""

    def __init__(self, state: RouterState) -> None:
        self._state = state

    async def subscribe(
        self, token: TokenRecord, existing: SubscriptionRecord | None, command: SubscribeToQueue
    ) -> Response:
        """SNEW: twice the same gives the same id; another key for the same queue is refused."""
        if existing is not None:
            if not hmac.compare_digest(existing.notifier_key, command.notifier_key.der):
                return _AUTH
            if existing.status is SubscriptionState.NEW:
                # Perhaps a store that failed after its work, so that nobody was told; twice does no harm.
                self._state.subscriber.subscribe(existing.queue, existing.notifier_key)
            return QueueSubscribed(existing.subscription_id)
        if not self._state.subscriber.may_dial(command.queue):
            return Refused(StoreFault("this address of an SMP router is not served"))
        limit = self._state.settings.subscriber.routers_per_token
        if await self._state.store.other_routers_of(token.token_id, command.queue.router) >= limit:
            return Refused(ErrorCode.QUOTA)
        record = SubscriptionRecord(
            self._state.randomness.new_id(),
            token.token_id,
            command.queue,
            command.notifier_key.der,
            SubscriptionState.NEW,
        )
        if not await self._state.store.add_subscription(record):
            # Another connection was faster, or the token is gone: the client's next try finds out which.
            return Refused(StoreFault("the subscription could not be added, try again"))
        self._state.counters.subscriptions_created += counts(token.device_token.provider)
        self._tell(record, SubscriptionState.NEW, "SNEW")
        self._state.subscriber.subscribe(record.queue, record.notifier_key)
        return QueueSubscribed(record.subscription_id)

    async def check(self, subscription: SubscriptionRecord) -> Response:
        """SCHK"""
        return SubscriptionChecked(subscription.status)

    async def delete(self, token: TokenRecord, subscription: SubscriptionRecord) -> Response:
        """SDEL"""
        if not await self._state.store.delete_subscription(subscription.subscription_id):
            return _AUTH
        self._state.counters.subscriptions_deleted += counts(token.device_token.provider)
        self._tell(subscription, None, "SDEL")
        return Done()

    def _tell(self, subscription: SubscriptionRecord, status: SubscriptionStatus | None, cause: str) -> None:
        queue = subscription.queue
        self._state.events.subscriptions_changed(queue.router, [(queue.notifier_id, status)], cause)
