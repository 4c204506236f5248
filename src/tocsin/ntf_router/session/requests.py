"""Verified requests of devices, the router's state they are executed against, and the events it reports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tocsin.ntf_router.delivery.pushes import NotificationPush
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.records import (
    ReceivedNotification,
    Results,
    SettledNotification,
    SubscriptionRecord,
    TokenRecord,
)
from tocsin.operate.clock import Clock
from tocsin.operate.command_table import CommandTable
from tocsin.operate.randomness import TokenRandomness
from tocsin.protocol.addresses import RouterAddress, RouterLocation
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.statuses import SubscriptionStatus, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.sessions import ReceivedCommand

C = TypeVar("C", bound=Command)


class Pushes(Protocol):
    """The part of the delivery that commands use."""

    def verify(self, token: TokenRecord) -> None:
        """Push the token's code to its device."""

    def notify(self, token_id: bytes, provider: PushProvider) -> None:
        """Push the pending notifications of the token."""


class Subscriber(Protocol):
    """The part of the SMP connections that commands use. No method waits: the store holds the wanted queues."""

    def subscribe(self, queue: NotifierQueue, notifier_key: bytes, token_id: bytes) -> None:
        """Send NSUB to the queue's router. The token is the one that named it."""

    def associated(self, router: RouterLocation, token_id: bytes) -> None:
        """Register at the router, because a queue there was associated by direct notifications."""

    def may_dial(self, queue: NotifierQueue) -> bool:
        """Whether the queue's router is one that this NTF router connects to."""

    def may_try(self, router: RouterLocation, token_id: bytes) -> bool:
        """Whether the token may name this router: not too many of those it named have never answered."""


@dataclass(frozen=True, slots=True)
class NtfState:
    """The state of one router, against which commands are executed."""

    settings: NtfSettings
    store: NtfStore
    clock: Clock
    randomness: TokenRandomness
    counters: NtfCounters
    pushes: Pushes
    subscriber: Subscriber
    events: NtfEvents


@dataclass(frozen=True, slots=True)
class NtfRequest(Generic[C]):
    """A verified command about no token that exists."""

    received: ReceivedCommand
    command: C


@dataclass(frozen=True, slots=True)
class TokenRequest(NtfRequest[C]):
    """A verified command about a token. Verification looked the token up, so handlers need not."""

    token: TokenRecord


@dataclass(frozen=True, slots=True)
class NewSubscriptionRequest(TokenRequest[C]):
    """SNEW: the token, and the subscription to the same queue if there is one."""

    existing: SubscriptionRecord | None
    other_routers: int
    """Other addresses of SMP routers where the token has queues."""


@dataclass(frozen=True, slots=True)
class SubscriptionRequest(TokenRequest[C]):
    """A verified command about a subscription of a token."""

    subscription: SubscriptionRecord


class NtfCommandTable(CommandTable[Awaitable[Response]]):
    """The handlers of an NTF router, which wait for its store; their changes are durable when they return."""

    def add(self, command: type[C], handler: Callable[[NtfRequest[C]], Awaitable[Response]]) -> None:
        self._add(command, handler)

    def add_for_token(
        self, command: type[C], handler: Callable[[TokenRequest[C]], Awaitable[Response]]
    ) -> None:
        self._add(command, handler)

    def add_for_new_subscription(
        self, command: type[C], handler: Callable[[NewSubscriptionRequest[C]], Awaitable[Response]]
    ) -> None:
        self._add(command, handler)

    def add_for_subscription(
        self, command: type[C], handler: Callable[[SubscriptionRequest[C]], Awaitable[Response]]
    ) -> None:
        self._add(command, handler)


def counts(provider: PushProvider) -> bool:
    """Whether statistics count this provider. Operators test servers with the null provider, which does not count."""
    return provider is not PushProvider.APNS_NULL


class NtfEvents(Protocol):
    """Receives reports for the event log and the latencies. Calls must be quick and must not raise."""

    @property
    def logged(self) -> bool:
        """Whether reports go to an event log."""

    def received(
        self, router: RouterAddress, notifications: Sequence[ReceivedNotification], results: Results
    ) -> None:
        """Report the store's decision about these notifications. Nothing is on disk yet."""

    def attempted(self, pushes: Sequence[NotificationPush]) -> None:
        """Report that these pushes were sent to the provider."""

    def settled(self, settled: Sequence[SettledNotification]) -> None:
        """Report outcomes that are not on disk yet."""

    def token_changed(
        self, token: TokenRecord, before: TokenStatus | None, after: TokenStatus | None, cause: str
    ) -> None:
        """Report a token's new status. `before` is None for a new token, `after` is None for a removed one."""

    def subscriptions_changed(
        self, router: RouterLocation, changed: Sequence[tuple[bytes, SubscriptionStatus | None]], cause: str
    ) -> None:
        """Report new statuses by notifier id. None means that the subscription is gone."""


class NoEvents:
    """Ignores all reports."""

    logged = False

    def received(
        self, router: RouterAddress, notifications: Sequence[ReceivedNotification], results: Results
    ) -> None:
        pass

    def attempted(self, pushes: Sequence[NotificationPush]) -> None:
        pass

    def settled(self, settled: Sequence[SettledNotification]) -> None:
        pass

    def token_changed(
        self, token: TokenRecord, before: TokenStatus | None, after: TokenStatus | None, cause: str
    ) -> None:
        pass

    def subscriptions_changed(
        self, router: RouterLocation, changed: Sequence[tuple[bytes, SubscriptionStatus | None]], cause: str
    ) -> None:
        pass
