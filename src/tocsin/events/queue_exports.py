"""Exports of both routers' queues for `tocsin pipeline reconcile`: the only declaration of their rows.

These files name queues in clear. Only their owner can read them, and they never become a table.

The columns that are compared are numbers, so that tens of millions of rows are summed in seconds: a queue is the hash
of its notifier id (the one of smp.md Appendix C, with which routers compare services), a router the beginning of its
key hash, a service the beginning of its id. The texts behind them are read only of routers that differ.

The first row of an export has no queue. It names the router and the time of the export, even if there are no queues.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

import msgspec

NO_SERVICE: Final = 0
WANTED: Final = frozenset({"NEW", "PENDING", "ACTIVE", "INACTIVE", "SERVICE"})
"""Statuses of subscriptions that should receive notifications. The others are final (ntf.md 2.6)."""


class SubscribedQueue(msgspec.Struct, frozen=True, gc=False):
    """A subscription of an NTF router."""

    server: int
    """The SMP router."""
    id_high: int
    id_low: int
    service: int
    """Service of this NTF router at that SMP router, or NO_SERVICE. The queue need not be associated with it."""
    wanted: bool
    associated: bool
    token_active: bool
    status: str
    router: str
    """Address of the SMP router."""
    notifier_id: str
    taken_at: int
    """Unix time."""

    def __repr__(self) -> str:
        """Omit the ids."""
        return f"SubscribedQueue({self.status!r}, {self.router!r})"


class ExportedQueue(msgspec.Struct, frozen=True, gc=False):
    """A queue of an SMP router that has a notifier."""

    server: int
    id_high: int
    id_low: int
    service: int
    """The associated service, or NO_SERVICE."""
    router: str
    notifier_id: str
    taken_at: int

    def __repr__(self) -> str:
        """Omit the ids."""
        return f"NotifierQueue({self.router!r})"


def beginning(identity: bytes | None) -> int:
    """Return the beginning of a key hash or service id as a number, NO_SERVICE if there is none."""
    return NO_SERVICE if identity is None else int.from_bytes(identity[:8], "big", signed=True)


def hash_halves(notifier_id: bytes) -> tuple[int, int]:
    digest = hashlib.md5(notifier_id, usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big", signed=True), int.from_bytes(digest[8:], "big", signed=True)


def id_text(notifier_id: bytes) -> str:
    return base64.urlsafe_b64encode(notifier_id).decode()


def id_of_text(text: str) -> bytes:
    """Raises ValueError."""
    return base64.b64decode(text, altchars=b"-_", validate=True)


def subscribed_queue(
    *,
    key_hash: bytes,
    router: str,
    notifier_id: bytes,
    status: str,
    associated: bool,
    service_id: bytes | None,
    token_active: bool,
    taken_at: int,
) -> SubscribedQueue:
    return SubscribedQueue(
        beginning(key_hash),
        *hash_halves(notifier_id),
        beginning(service_id),
        status.partition(" ")[0] in WANTED,
        associated,
        token_active,
        status,
        router,
        id_text(notifier_id),
        taken_at,
    )


def notifier_queue(
    *, key_hash: bytes, router: str, notifier_id: bytes, service_id: bytes | None, taken_at: int
) -> ExportedQueue:
    return ExportedQueue(
        beginning(key_hash),
        *hash_halves(notifier_id),
        beginning(service_id),
        router,
        id_text(notifier_id),
        taken_at,
    )


def first_subscribed_row(taken_at: int) -> SubscribedQueue:
    return SubscribedQueue(0, 0, 0, NO_SERVICE, False, False, False, "", "", "", taken_at)


def first_notifier_row(key_hash: bytes, router: str, taken_at: int) -> ExportedQueue:
    return ExportedQueue(beginning(key_hash), 0, 0, NO_SERVICE, router, "", taken_at)
