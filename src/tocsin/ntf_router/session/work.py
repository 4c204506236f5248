"""What is shared by everything that executes commands of devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tocsin.ntf_router.session.events import NtfEvents
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.records import SubscriptionRecord, TokenRecord
from tocsin.operate.clock import Clock
from tocsin.operate.randomness import TokenRandomness
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.subscription_commands import NotifierQueue


class Pushes(Protocol):
    """What commands ask of the delivery."""

    def verify(self, token: TokenRecord) -> None:
        """Push the token's code to its device."""

    def notify(self, token_id: bytes, provider: PushProvider) -> None:
        """Push what is pending for the token."""


class Subscriber(Protocol):
    """What commands ask of the connections to SMP routers. Neither waits: the store says what is wanted."""

    def subscribe(self, queue: NotifierQueue, notifier_key: bytes) -> None:
        """NSUB at the queue's router."""

    def associated(self, router: RouterLocation) -> None:
        """A queue there was associated by direct notifications: the router must know us."""

    def may_dial(self, queue: NotifierQueue) -> bool:
        """Whether the queue's router is one that this NTF router connects to."""


@dataclass(frozen=True, slots=True)
class RouterState:
    """One router's parts."""

    settings: NtfSettings
    store: NtfStore
    clock: Clock
    randomness: TokenRandomness
    counters: NtfCounters
    pushes: Pushes
    subscriber: Subscriber
    events: NtfEvents


@dataclass(frozen=True, slots=True)
class Authorized:
    """What a verified command is about; found once, so that it is not looked up again."""

    token: TokenRecord | None = None
    subscription: SubscriptionRecord | None = None


def counts(provider: PushProvider) -> bool:
    """Tokens of the null provider are tests of a server by its operator: they touch no statistics."""
    return provider is not PushProvider.APNS_NULL
