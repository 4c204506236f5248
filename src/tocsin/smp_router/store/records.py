"""The records of an SMP router: queues, services, messages and notifications.

Records are immutable: a change makes a new one. Keys are kept as DER, ids and secrets as bytes, because there are
millions of them and most are never parsed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tocsin.protocol.error_codes import Blocked
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.queue_modes import LinkData, QueueMode


class QueueStatus(Enum):
    ACTIVE = "active"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class QueueLink:
    """Data behind a short link."""

    link_id: bytes = field(repr=False)
    data: LinkData = field(repr=False)


@dataclass(frozen=True, slots=True)
class NotifierRecord:
    """A party that may subscribe to a queue's notifications, and the secret that hides their content from it."""

    notifier_id: bytes = field(repr=False)
    key: bytes = field(repr=False)
    """DER of the notifier's public key."""
    dh_secret: bytes = field(repr=False)
    """Shared with the recipient; encrypts the metadata."""
    service_id: bytes | None = field(default=None, repr=False)
    """The service that gets the notifications of this queue, if one was associated."""


@dataclass(frozen=True, slots=True)
class QueueRecord:
    recipient_id: bytes = field(repr=False)
    recipient_keys: tuple[bytes, ...] = field(repr=False)
    """DER of the keys, each of which authorizes the recipient's commands."""
    dh_secret: bytes = field(repr=False)
    """Shared with the recipient; encrypts delivered messages."""
    sender_id: bytes = field(repr=False)
    sender_key: bytes | None = field(default=None, repr=False)
    """DER; None while the queue is not secured."""
    mode: QueueMode | None = None
    link: QueueLink | None = None
    notifier: NotifierRecord | None = None
    status: QueueStatus | Blocked = QueueStatus.ACTIVE
    updated_at: int | None = None
    """Day of last use, as Unix time."""
    service_id: bytes | None = field(default=None, repr=False)
    """The messaging service of the recipient, if one was associated."""


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    service_id: bytes = field(repr=False)
    role: ServiceRole
    certificates: tuple[bytes, ...] = field(repr=False)
    """The chain it presented first, DER, leaf first."""
    fingerprint: bytes = field(repr=False)
    created_at: int


@dataclass(frozen=True, slots=True)
class StoredMessage:
    message_id: bytes = field(repr=False)
    sent_at: int
    priority: int
    """0: no notification; 1: ordinary; 2 and 3: for mentions, replies and the most important messages."""
    body: bytes | None = field(repr=False)
    """None for the marker that shows where the quota was hit."""

    @property
    def notify(self) -> bool:
        return self.priority > 0

    @property
    def is_quota_marker(self) -> bool:
        return self.body is None


@dataclass(frozen=True, slots=True)
class StoredNotification:
    message_id: bytes = field(repr=False)
    sent_at: int
    nonce: bytes = field(repr=False)
    sealed_meta: bytes = field(repr=False)
