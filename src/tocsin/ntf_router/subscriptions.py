"""Subscriptions to the notifications of queues (ntf.md 4.3)."""

from __future__ import annotations

import hmac
from typing import Final

from tocsin.errors import StoreFull
from tocsin.ntf_router.session.requests import (
    NewSubscriptionRequest,
    NtfCommandTable,
    NtfState,
    SubscriptionRequest,
    counts,
)
from tocsin.ntf_router.store.records import SubscriptionRecord, TokenRecord
from tocsin.protocol.error_codes import CommandFault, ErrorCode, StoreFault
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.responses import QueueSubscribed, SubscriptionChecked
from tocsin.protocol.ntf.statuses import SubscriptionState, SubscriptionStatus, TokenState
from tocsin.protocol.ntf.subscription_commands import (
    CheckSubscription,
    DeleteSubscription,
    NotifierQueue,
    SubscribeToQueue,
)
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
                await self._connect(command.queue, existing.notifier_key, token)
            return QueueSubscribed(existing.subscription_id)
        if not self._state.subscriber.may_dial(command.queue):
            return Refused(CommandFault.PROHIBITED)
        limit = self._state.settings.subscriber.routers_per_token
        if request.other_routers >= limit or not self._state.subscriber.may_try(
            command.queue.router, token.token_id
        ):
            self._state.counters.subscriptions_refused += 1
            return Refused(ErrorCode.QUOTA)
        record = SubscriptionRecord(
            self._state.randomness.new_id(),
            token.token_id,
            command.queue,
            command.notifier_key.der,
            SubscriptionState.NEW,
        )
        try:
            added = await self._state.store.add_subscription(record)
        except StoreFull as full:
            self._state.counters.count_full(full.limit)
            return Refused(ErrorCode.QUOTA)
        if not added:
            # Another connection was faster, or the token is gone. The client's next try shows which.
            return Refused(StoreFault("the subscription could not be added, try again"))
        self._state.counters.subscriptions_created += counts(token.device_token.provider)
        self._report(record, SubscriptionState.NEW, "SNEW")
        await self._connect(command.queue, record.notifier_key, token)
        return QueueSubscribed(record.subscription_id)

    async def _connect(self, queue: NotifierQueue, notifier_key: bytes, token: TokenRecord) -> None:
        """Subscribe at the SMP router as it is named now. TVFY does that for queues of a token that is not active.

        Anyone can register a device token that no device has, and name routers in its name.
        """
        now: TokenRecord | None = token
        if token.status.state is not TokenState.ACTIVE:
            # TVFY may have come while the row was added, and may have missed it.
            now = await self._state.store.token(token.token_id)
        subscriber = self._state.subscriber
        if now is not None and now.status.state is TokenState.ACTIVE and subscriber.may_dial(queue):
            subscriber.subscribe(queue, notifier_key, token.token_id)

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
