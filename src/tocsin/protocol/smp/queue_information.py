"""The JSON of INFO, for debugging a queue (smp.md 6.4). Message ids are in standard base64 here."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tocsin.errors import DecodeError


class DeliveryState(StrEnum):
    NONE = "noSub"
    PENDING = "subPending"
    RUNNING = "subThread"
    PROHIBITED = "prohibitSub"


class MessageKind(StrEnum):
    MESSAGE = "message"
    QUOTA = "quota"


@dataclass(frozen=True, slots=True)
class SubscriptionInformation:
    """The subscription of the asking connection."""

    state: DeliveryState
    delivered: bytes | None = None


@dataclass(frozen=True, slots=True)
class HeadMessage:
    message_id: bytes
    sent_at: str
    """ISO 8601, UTC."""
    kind: MessageKind


@dataclass(frozen=True, slots=True)
class QueueInformation:
    secured: bool
    notifier: bool
    subscription: SubscriptionInformation | None
    size: int
    head: HeadMessage | None

    def to_json(self) -> bytes:
        """Keys in the order of the reference, absent ones left out, no white space."""
        fields: dict[str, Any] = {"qiSnd": self.secured, "qiNtf": self.notifier}
        if self.subscription is not None:
            fields["qiSub"] = {"qSubThread": self.subscription.state.value}
            if self.subscription.delivered is not None:
                fields["qiSub"]["qDelivered"] = _to_base64(self.subscription.delivered)
        fields["qiSize"] = self.size
        if self.head is not None:
            fields["qiMsg"] = {
                "msgId": _to_base64(self.head.message_id),
                "msgTs": self.head.sent_at,
                "msgType": self.head.kind.value,
            }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> QueueInformation:
        """Raises `DecodeError`; unknown keys are ignored."""
        try:
            fields = json.loads(data)
            subscription, head = fields.get("qiSub"), fields.get("qiMsg")
            return cls(
                bool(fields["qiSnd"]),
                bool(fields["qiNtf"]),
                None if subscription is None else _subscription(subscription),
                int(fields["qiSize"]),
                None if head is None else _head(head),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise DecodeError("not the JSON of a queue's information") from error


def _subscription(fields: dict[str, Any]) -> SubscriptionInformation:
    delivered = fields.get("qDelivered")
    state = DeliveryState(fields["qSubThread"])
    return SubscriptionInformation(state, None if delivered is None else _from_base64(delivered))


def _head(fields: dict[str, Any]) -> HeadMessage:
    return HeadMessage(_from_base64(fields["msgId"]), str(fields["msgTs"]), MessageKind(fields["msgType"]))


def _to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise DecodeError("a message id that is not base64") from error
