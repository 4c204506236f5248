"""The delivery event: routers write one for each stage of a notification, and the pipeline reads them.

This is its only declaration. Identifiers appear only as keyed hashes (`pseudonyms`): never an id, key, payload or
address in clear. A change of a field's meaning needs a new `SCHEMA_VERSION`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

SCHEMA_VERSION: Final = 2
"""2 added `engine`."""
FIRST_VERSION: Final = 1
"""Lines without a version have this one. Lines of later versions name theirs."""


def readable_versions(version: int = SCHEMA_VERSION) -> range:
    """The versions that a reader of this version accepts: its own and the one before, since routers may be behind."""
    return range(max(version - 1, FIRST_VERSION), version + 1)


class Stage(StrEnum):
    """The stages of a notification, and changes of tokens and subscriptions."""

    # SMP router
    ENQUEUED = "enqueued"
    """Stored at the SMP router, with its message."""
    SENT = "sent"
    """Confirmed by the NTF router."""
    EXPIRED = "expired"
    """Removed before it was sent: no NTF router subscribed in time."""
    DROPPED = "dropped"
    """Removed before it was sent: its queue or notifier was deleted, or too many were waiting."""
    # NTF router
    RECEIVED = "received"
    """Stored at the NTF router, pending."""
    UNKNOWN_QUEUE = "unknown_queue"
    """Received without a subscription of an active token."""
    SUPERSEDED = "superseded"
    """Replaced by a newer one of its queue before it was pushed."""
    BATCHED = "batched"
    """Put into a push."""
    ATTEMPTED = "attempted"
    """Sent to the provider."""
    ACCEPTED = "accepted"
    """Accepted by the provider."""
    FAILED = "failed"
    """Failed for the given reason."""
    SHED = "shed"
    """Dropped because too many waited."""
    # Device
    WOKEN = "woken"
    """The device opened the push."""
    FETCHED = "fetched"
    """The device has the message."""
    # Changes
    TOKEN_CHANGED = "token_changed"  # noqa: S105
    """A token was added, removed or changed its status."""
    SUBSCRIPTION_CHANGED = "subscription_changed"
    """A subscription was added, removed or changed its status."""


ENDS: Final = frozenset({Stage.ACCEPTED, Stage.SUPERSEDED, Stage.FAILED, Stage.SHED})
"""Final stages: a notification that the NTF router received has exactly one of them, or is pending."""


PRIORITY_NAMES: Final = ("", "", "mention", "highest")
"""Names of the priorities 0 to 3 in events. Ordinary messages have none."""


class DeliveryEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the log. Fields that do not apply are left out."""

    id: str
    """The same id if the event is written again after a crash, so that readers can drop the repeat."""
    stage: str
    """One of `Stage`."""
    at: int
    """Unix time in microseconds."""
    mono: int
    """Monotonic clock of this router, microseconds."""
    router: str
    """Instance that wrote it."""
    period: str
    """The period of the pseudonyms' key. Pseudonyms compare only within a period."""
    version: int = FIRST_VERSION
    """The version of this schema."""
    notification: str = ""
    """Pseudonym of the notification."""
    queue: str = ""
    """Pseudonym of its queue."""
    token: str = ""
    """Pseudonym of the NTF token."""
    smp_host: str = ""
    """Host of the SMP router, in clear: routers are public."""
    provider: str = ""
    """Push provider and environment."""
    outcome: str = ""
    """The meaning of the provider's answer."""
    reason: str = ""
    """The provider's reason, or another reason for the outcome."""
    attempt: int = 0
    """0 for the first push that carries it."""
    engine: str = ""
    """The engine that pushed: `inline` (the router) or `spark` (the job `tocsin pipeline deliver`). Since version 2."""
    batch: str = ""
    """Pseudonym of the push."""
    priority: str = ""
    """The priority of the message, if it is above the ordinary one: `mention` or `highest`."""
    size: int = 0
    """The size of the payload in bytes."""
    from_status: str = ""
    """The status before a change of a token or subscription."""
    to_status: str = ""
    """The status after the change, empty if it was removed."""
    cause: str = ""
    """The command or event that caused the change."""


def decode_event(line: bytes) -> DeliveryEvent:
    """Decode a line. Raises ValueError if it is not an event of a known version."""
    try:
        event = _DECODER.decode(line)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a delivery event: {error}") from error
    if event.version not in readable_versions():
        raise ValueError(
            f"the delivery event has version {event.version}; this program reads up to {SCHEMA_VERSION}"
        )
    return event


_DECODER: Final = msgspec.json.Decoder(DeliveryEvent)
