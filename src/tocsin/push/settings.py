"""Settings of Apple's push service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

APNS_PORT: Final = 443


@dataclass(frozen=True, slots=True)
class ApnsEndpoint:
    """Where one environment of Apple's push service is, and whom to believe that it is it."""

    host: str
    port: int = APNS_PORT
    ca_file: Path | None = None
    """Certificates that may vouch for it; the system's if not given."""


@dataclass(frozen=True, slots=True)
class ApnsSettings:
    """Apple's push service."""

    endpoints: Mapping[str, ApnsEndpoint] = field(
        default_factory=lambda: {
            "apns_prod": ApnsEndpoint("api.push.apple.com"),
            "apns_dev": ApnsEndpoint("api.sandbox.push.apple.com"),
        }
    )
    """By the name of the provider. `apns_test` tokens are refused unless there is an endpoint for them."""
    key_file: Path | None = None
    """PKCS#8 PEM of the P-256 key that Apple gave out."""
    key_id: str | None = None
    team_id: str = "5NN7GUYB6T"
    topic: str = "chat.simplex.app"
    connections: int = 4
    """HTTP/2 connections to each endpoint, opened as they are needed."""
    connect_timeout: float = 25.0
    request_timeout: float = 25.0


@dataclass(frozen=True, slots=True)
class WebPushSettings:
    """Web Push services, whichever devices name (RFC 8030); what UnifiedPush distributors are."""

    enabled: bool = False
    """Device tokens of `webpush` are refused otherwise."""
    key_file: Path = Path("webpush-vapid.pem")
    """PEM of the P-256 key by which push services know this router (RFC 8292); made at the first start."""
    subject: str | None = None
    """Where they find its operator: a `mailto:` or `https:` address."""
    ca_file: Path | None = None
    """Certificates that may vouch for them, besides the system's."""
    connections: int = 4
    """To each host."""
    hosts: int = 256
    """Hosts that are connected at a time."""
    timeout: float = 15.0
    """For a push to be answered, from when it is due."""
    rate: int = 100
    """Pushes a second to one host."""
