"""The delivery event: what routers write down of each stage of a notification, and the pipeline reads.

Declared here and nowhere else. Identifiers appear only as keyed hashes (`pseudonyms`): no id, key, payload or address
in clear, ever. A change of a field's meaning is a new `SCHEMA_VERSION`.
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
    SENT = "sent"
    EXPIRED = "expired"
    DROPPED = "dropped"
    # NTF router
    RECEIVED = "received"
    UNKNOWN_QUEUE = "unknown_queue"
    SUPERSEDED = "superseded"
    BATCHED = "batched"
    ATTEMPTED = "attempted"
    ACCEPTED = "accepted"
    FAILED = "failed"
    SHED = "shed"
    # Device
    WOKEN = "woken"
    FETCHED = "fetched"
    # Changes
    TOKEN_CHANGED = "token_changed"  # noqa: S105
    SUBSCRIPTION_CHANGED = "subscription_changed"


ENDS: Final = frozenset({Stage.ACCEPTED, Stage.SUPERSEDED, Stage.FAILED, Stage.SHED})
"""A notification that the NTF router received has exactly one of these, or is pending."""


class DeliveryEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the log. Fields that do not apply are left out."""

    id: str
    """The same when the same thing is written down again after a crash, so that readers can drop the repeat."""
    stage: str
    at: int
    """Wall clock, microseconds since 1970."""
    mono: int
    """Monotonic clock of this router, microseconds."""
    router: str
    """Instance that wrote it."""
    period: str
    """Whose key made the pseudonyms: they compare only within a period."""
    version: int = SCHEMA_VERSION
    notification: str = ""
    queue: str = ""
    token: str = ""
    smp_host: str = ""
    provider: str = ""
    outcome: str = ""
    reason: str = ""
    attempt: int = 0
    batch: str = ""
    priority: str = ""
    size: int = 0
    from_status: str = ""
    to_status: str = ""
    cause: str = ""


def encode_events(events: list[DeliveryEvent]) -> bytes:
    """Lines, each with its end."""
    return _ENCODER.encode_lines(events)


def decode_event(line: bytes) -> DeliveryEvent:
    """Raises ValueError if the line is no event of a known version."""
    try:
        event = _DECODER.decode(line)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a delivery event: {error}") from error
    if event.version != SCHEMA_VERSION:
        raise ValueError(f"a delivery event of version {event.version}; {SCHEMA_VERSION} is known")
    return event


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(DeliveryEvent)
