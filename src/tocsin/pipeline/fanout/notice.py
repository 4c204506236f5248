"""An operator's notice: a text that devices show as it is.

Reference: the plain-alert variant of `APNSNotificationBody` (ntf.md 3.2), which the reference program defines but does
not send. It has no `mutable-content`, so the operating system shows the text without the app.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass
from typing import Final

from tocsin.errors import ConfigError
from tocsin.push.provider import PushRequest, Urgency

LARGEST: Final = 4096
"""Bytes of the largest payload that Apple accepts."""


@dataclass(frozen=True, slots=True)
class Notice:
    text: str
    title: str = ""

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ConfigError("--notice is empty: give the text to show")
        if (size := len(self.payload())) > LARGEST:
            raise ConfigError(
                f"--notice is too long: {size} bytes as a push, but the limit is {LARGEST}. Shorten it"
            )

    def payload(self) -> bytes:
        alert = {"title": self.title, "body": self.text} if self.title else self.text
        return json.dumps({"aps": {"alert": alert}}, ensure_ascii=False, separators=(",", ":")).encode()

    def digest(self) -> str:
        return hashlib.sha256(self.payload()).hexdigest()

    def request(self, device_token: bytes, campaign: str, expires_at: int) -> PushRequest:
        """The push id is the same for the same campaign and device in every run."""
        named = b"tocsin notice push\0" + campaign.encode() + b"\0" + device_token
        push_id = str(uuid.UUID(bytes=hashlib.sha256(named).digest()[:16], version=4))
        return PushRequest(device_token, self.payload(), Urgency.ALERT, push_id, expires_at)
