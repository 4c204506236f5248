"""The delivery event: routers write one for each stage of a notification, and the pipeline reads them.

This is its only declaration. Identifiers appear only as keyed hashes (`pseudonyms`): never an id, key, payload or
address in clear. A change of a field's meaning needs a new `SCHEMA_VERSION`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

SCHEMA_VERSION: Final = 1


class Stage(StrEnum):
    """Where a notification is, or what changed."""

    # SMP router
    ENQUEUED = "enqueued"
    """Stored at the SMP router, with its message."""
    SENT = "sent"
    """The NTF router has it."""
    EXPIRED = "expired"
    """Nobody fetched it in time."""
    DROPPED = "dropped"
    """Its queue or notifier was deleted."""
    # NTF router
    RECEIVED = "received"
    """Stored at the NTF router, pending."""
    UNKNOWN_QUEUE = "unknown_queue"
    """No subscription of an active token."""
    SUPERSEDED = "superseded"
    """A newer one of its queue came before it was pushed."""
    BATCHED = "batched"
    """Put into a push."""
    ATTEMPTED = "attempted"
    """The push is on its way to the provider."""
    ACCEPTED = "accepted"
    """The provider took it."""
    FAILED = "failed"
    """It never will, for the reason given."""
    SHED = "shed"
    """Dropped because too many waited."""
    # Device
    WOKEN = "woken"
    """The device opened the push."""
    FETCHED = "fetched"
    """The device has the message."""
    # Changes
    TOKEN_CHANGED = "token_changed"  # noqa: S105
    """A token came, went or changed its status."""
    SUBSCRIPTION_CHANGED = "subscription_changed"
    """A subscription did."""


ENDS: Final = frozenset({Stage.ACCEPTED, Stage.SUPERSEDED, Stage.FAILED, Stage.SHED})
"""A notification that the NTF router received has exactly one of these, or is pending."""


class DeliveryEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the log. Fields that do not apply are left out."""

    id: str
    """The same when the same thing is written down again after a crash, so that readers can drop the repeat."""
    stage: str
    """One of `Stage`."""
    at: int
    """Wall clock, microseconds since 1970."""
    mono: int
    """Monotonic clock of this router, microseconds."""
    router: str
    """Instance that wrote it."""
    period: str
    """Whose key made the pseudonyms: they compare only within a period."""
    version: int = SCHEMA_VERSION
    """Of this schema."""
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
    """What the provider's answer means."""
    reason: str = ""
    """Its reason, or why the notification ended otherwise."""
    attempt: int = 0
    """0 for the first push that carries it."""
    batch: str = ""
    """Pseudonym of the push."""
    priority: str = ""
    """Of the push."""
    size: int = 0
    """Bytes of what is pushed."""
    from_status: str = ""
    """Of a token or subscription that changed."""
    to_status: str = ""
    """Empty if it is gone."""
    cause: str = ""
    """Command or event that changed it."""


def decode_event(line: bytes) -> DeliveryEvent:
    """Raises ValueError if the line is no event of a known version."""
    try:
        event = _DECODER.decode(line)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a delivery event: {error}") from error
    if event.version != SCHEMA_VERSION:
        raise ValueError(f"a delivery event of version {event.version}; {SCHEMA_VERSION} is known")
    return event


_DECODER: Final = msgspec.json.Decoder(DeliveryEvent)
