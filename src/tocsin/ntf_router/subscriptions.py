"""Subscriptions to the notifications of queues (ntf.md 4.3)."""

from __future__ import annotations

import hmac
from typing import Final

from tocsin.ntf_router.session.requests import (
    NewSubscriptionRequest,
    NtfCommandTable,
    NtfState,
    SubscriptionRequest,
    counts,
)
from tocsin.ntf_router.store.records import SubscriptionRecord, TokenRecord
from tocsin.protocol.error_codes import ErrorCode, StoreFault
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.responses import QueueSubscribed, SubscriptionChecked
from tocsin.protocol.ntf.statuses import SubscriptionState, SubscriptionStatus, TokenState
from tocsin.protocol.ntf.subscription_commands import CheckSubscription, DeleteSubscription, SubscribeToQueue
from tocsin.protocol.router_answers import Done, Refused

_AUTH: Final = Refused(ErrorCode.AUTH)


class SubscriptionCommands:
    """SNEW, SCHK and SDEL."""

    def __init__(self, state: NtfState) -> None:
        self._state = state

    def add_to(self, table: NtfCommandTable) -> None:
        table.add_for_new_subscription(SubscribeToQueue, self.subscribe)
        table.add_for_subscription(CheckSubscription, self.check)
        table.add_for_subscription(DeleteSubscription, self.delete)

    async def subscribe(self, request: NewSubscriptionRequest[SubscribeToQueue]) -> Response:
        """SNEW: a repeated command gets the same id; another key for the same queue is refused."""
        token, existing, command = request.token, request.existing, request.command
        if existing is not None:
            if not hmac.compare_digest(existing.notifier_key, command.notifier_key.der):
                return _AUTH
            if existing.status is SubscriptionState.NEW:
                # The store may have failed after it added the row, before we subscribed. Subscribing twice is harmless.
                self._connect(existing, token)
            return QueueSubscribed(existing.subscription_id)
        if not self._state.subscriber.may_dial(command.queue):
            return Refused(StoreFault("this SMP router's address is not served"))
        limit = self._state.settings.subscriber.routers_per_token
        others = await self._state.store.other_routers_of(token.token_id, command.queue.router)
        if others >= limit or not self._state.subscriber.may_try(command.queue.router, token.token_id):
            self._state.counters.subscriptions_refused += 1
            return Refused(ErrorCode.QUOTA)
        record = SubscriptionRecord(
            self._state.randomness.new_id(),
            token.token_id,
            command.queue,
            command.notifier_key.der,
            SubscriptionState.NEW,
        )
        if not await self._state.store.add_subscription(record):
            # Another connection was faster, or the token is gone. The client's next try shows which.
            return Refused(StoreFault("the subscription could not be added, try again"))
        self._state.counters.subscriptions_created += counts(token.device_token.provider)
        self._report(record, SubscriptionState.NEW, "SNEW")
        self._connect(record, token)
        return QueueSubscribed(record.subscription_id)

    def _connect(self, subscription: SubscriptionRecord, token: TokenRecord) -> None:
        """Subscribe at the SMP router. A token that is not active can have queues, but TVFY connects to their routers:

        Anyone can register a device token that no device has, and name routers in its name.
        """
        if token.status.state is TokenState.ACTIVE:
            self._state.subscriber.subscribe(subscription.queue, subscription.notifier_key, token.token_id)

    async def check(self, request: SubscriptionRequest[CheckSubscription]) -> Response:
        """SCHK"""
        return SubscriptionChecked(request.subscription.status)

    async def delete(self, request: SubscriptionRequest[DeleteSubscription]) -> Response:
        """SDEL"""
        token, subscription = request.token, request.subscription
        if not await self._state.store.delete_subscription(subscription.subscription_id):
            return _AUTH
        self._state.counters.subscriptions_deleted += counts(token.device_token.provider)
        self._report(subscription, None, "SDEL")
        return Done()

    def _report(
        self, subscription: SubscriptionRecord, status: SubscriptionStatus | None, cause: str
    ) -> None:
        queue = subscription.queue
        self._state.events.subscriptions_changed(queue.router, [(queue.notifier_id, status)], cause)
