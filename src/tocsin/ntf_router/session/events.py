"""Who is told what becomes of notifications, tokens and subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tocsin.ntf_router.store.records import (
    Ended,
    NotRecorded,
    PendingNotification,
    ReceivedNotification,
    Recorded,
    Settled,
    TokenRecord,
)
from tocsin.protocol.addresses import RouterAddress, RouterLocation
from tocsin.protocol.ntf.statuses import SubscriptionStatus, TokenStatus


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """A message push that is sent to a provider."""

    token: TokenRecord
    pending: Sequence[PendingNotification]
    number: int
    """0 for the first."""


class NtfEvents(Protocol):
    """The event log and the latency metrics. Calls must be quick and must not raise."""

    def received(
        self,
        router: RouterAddress,
        notifications: Sequence[ReceivedNotification],
        results: Sequence[Recorded | NotRecorded],
    ) -> None:
        """Decided, not on disk yet."""

    def attempted(self, attempts: Sequence[Attempt]) -> None:
        """These pushes are on their way to the provider."""

    def settled(self, settled: Sequence[Settled]) -> None:
        """Accepted, or failed; not on disk yet."""

    def ended(self, ended: Sequence[Ended]) -> None:
        """Because their token or subscription goes or is invalid, or they are too old; not on disk yet."""

    def token_changed(
        self, token: TokenRecord, before: TokenStatus | None, after: TokenStatus | None, cause: str
    ) -> None:
        """None: it did not exist before, or does not any more."""

    def subscriptions_changed(
        self, router: RouterLocation, changed: Sequence[tuple[bytes, SubscriptionStatus | None]], cause: str
    ) -> None:
        """By notifier id; None: it does not exist any more."""


class NoEvents:
    """Nobody is told."""

    def received(
        self,
        router: RouterAddress,
        notifications: Sequence[ReceivedNotification],
        results: Sequence[Recorded | NotRecorded],
    ) -> None:
        pass

    def attempted(self, attempts: Sequence[Attempt]) -> None:
        pass

    def settled(self, settled: Sequence[Settled]) -> None:
        pass

    def ended(self, ended: Sequence[Ended]) -> None:
        pass

    def token_changed(
        self, token: TokenRecord, before: TokenStatus | None, after: TokenStatus | None, cause: str
    ) -> None:
        pass

    def subscriptions_changed(
        self, router: RouterLocation, changed: Sequence[tuple[bytes, SubscriptionStatus | None]], cause: str
    ) -> None:
        pass
