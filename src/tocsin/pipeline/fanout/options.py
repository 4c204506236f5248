"""The options of a campaign: what it pushes, to which tokens, and how fast."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from dataclasses import dataclass
from typing import Final

from tocsin.errors import ConfigError
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind
from tocsin.pipeline.fanout.campaign_tokens import TokenSource
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.provider import PushRequest, Urgency

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
REMINDER_TTL: Final = 3600
NOTICE_TTL: Final = 86_400
"""A notice is for people: it may reach a phone that was off for a while."""
REMINDER: Final = "reminder"
_PUSHED_BY_ROUTERS: Final = frozenset({PushProvider.WEBPUSH, PushProvider.FCM})
"""The router itself reminds these devices."""
PROVIDERS: Final = tuple(sorted(each.text for each in PushProvider if each not in _PUSHED_BY_ROUTERS))


LARGEST: Final = 4096
"""Bytes of the largest payload that Apple accepts."""


@dataclass(frozen=True, slots=True)
class Notice:
    """An operator's notice: a text that devices show as it is.

    Reference: the plain-alert variant of `APNSNotificationBody` (ntf.md 3.2), which the reference program defines but
    does not send. It has no `mutable-content`, so the operating system shows the text without the app.
    """

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


@dataclass(frozen=True, slots=True)
class FanoutOptions:
    """Raises ConfigError that names the option."""

    campaign: str
    rate: float = 1000.0
    """Pushes per second to each provider."""
    notice: Notice | None = None
    providers: tuple[str, ...] = PROVIDERS

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.campaign):
            raise ConfigError(f"--campaign {self.campaign[:80]}: use letters, digits, `.`, `_` and `-` only")
        if not self.rate > 0:
            raise ConfigError(f"--rate {self.rate}: must be more than 0")

    @property
    def kind(self) -> str:
        """Tells campaigns apart that push something else, or to other providers."""
        what = REMINDER if self.notice is None else f"notice {self.notice.digest()}"
        return f"{what} {' '.join(self.providers)}"

    def expires_at(self, now: int) -> int:
        return now + (REMINDER_TTL if self.notice is None else NOTICE_TTL)

    def source(self, settings: NtfSettings, now: int) -> TokenSource:
        """A reminder is for tokens whose periodic push is due, a notice for all. Raises ConfigError."""
        if settings.store_kind is not StoreKind.URL or settings.database_url is None:
            raise ConfigError(
                "fanout reads tokens from PostgreSQL, but the settings name no database: set db_connection"
            )
        due_at = now if self.notice is None else None
        return TokenSource(settings.database_url, settings.database_schema, self.providers, due_at)
