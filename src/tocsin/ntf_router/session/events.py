"""Reports of what happens to notifications, tokens and subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tocsin.ntf_router.delivery.pushes import NotificationPush
from tocsin.ntf_router.store.records import (
    NotRecorded,
    ReceivedNotification,
    Recorded,
    SettledNotification,
    TokenRecord,
)
from tocsin.protocol.addresses import RouterAddress, RouterLocation
from tocsin.protocol.ntf.statuses import SubscriptionStatus, TokenStatus


class NtfEvents(Protocol):
    """Receives reports for the event log and the latencies. Calls must be quick and must not raise."""

    def received(
        self,
        router: RouterAddress,
        notifications: Sequence[ReceivedNotification],
        results: Sequence[Recorded | NotRecorded],
    ) -> None:
        """The store has decided what becomes of them; nothing is on disk yet."""

    def attempted(self, pushes: Sequence[NotificationPush]) -> None:
        """These pushes are on their way to the provider."""

    def settled(self, settled: Sequence[SettledNotification]) -> None:
        """The notifications have their outcome, which is not on disk yet."""

    def token_changed(
        self, token: TokenRecord, before: TokenStatus | None, after: TokenStatus | None, cause: str
    ) -> None:
        """`None` before means that the token is new, `None` after that it is gone."""

    def subscriptions_changed(
        self, router: RouterLocation, changed: Sequence[tuple[bytes, SubscriptionStatus | None]], cause: str
    ) -> None:
        """Statuses by notifier id. `None` means that the subscription is gone."""


class NoEvents:
    """Ignores all reports."""

    def received(
        self,
        router: RouterAddress,
        notifications: Sequence[ReceivedNotification],
        results: Sequence[Recorded | NotRecorded],
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
