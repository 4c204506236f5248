"""Settings of the push providers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HTTPS_PORT: Final = 443


@dataclass(frozen=True, slots=True)
class ApnsEndpoint:
    """The address of one environment of Apple's push service, and its CA."""

    host: str
    port: int = HTTPS_PORT
    ca_file: Path | None = None
    """CA certificates; by default the system's."""


@dataclass(frozen=True, slots=True)
class ApnsSettings:
    """Settings of Apple's push service."""

    endpoints: Mapping[str, ApnsEndpoint] = field(
        default_factory=lambda: {
            "apns_prod": ApnsEndpoint("api.push.apple.com"),
            "apns_dev": ApnsEndpoint("api.sandbox.push.apple.com"),
        }
    )
    """Endpoints by provider name. `apns_test` tokens are refused unless they have an endpoint."""
    key_file: Path | None = None
    """PKCS#8 PEM of the P-256 key that Apple issued."""
    key_id: str | None = None
    team_id: str = "5NN7GUYB6T"
    topic: str = "chat.simplex.app"
    connections: int = 4
    """The limit of HTTP/2 connections to each endpoint, opened on demand."""
    connect_timeout: float = 25.0
    request_timeout: float = 25.0


@dataclass(frozen=True, slots=True)
class WebPushSettings:
    """Settings for Web Push services, which devices name (RFC 8030). UnifiedPush distributors are such services."""

    enabled: bool = False
    """Whether `webpush` device tokens are accepted."""
    key_file: Path = Path("webpush-vapid.pem")
    """PEM of the P-256 key that identifies this router to push services (RFC 8292), created at the first start."""
    subject: str | None = None
    """The operator's contact for push services: a `mailto:` or `https:` address."""
    ca_file: Path | None = None
    """CA certificates in addition to the system's."""
    connections: int = 4
    """The limit of connections to each host."""
    hosts: int = 256
    """The limit of connected hosts."""
    timeout: float = 15.0
    """Seconds until a due push must be answered."""
    rate: int = 100
    """The limit of pushes per second to one host."""


@dataclass(frozen=True, slots=True)
class FcmSettings:
    """Settings of Firebase Cloud Messaging, for the devices of one project."""

    key_file: Path | None = None
    """JSON key file of the project's service account. Without it, `fcm` device tokens are refused."""
    host: str = "fcm.googleapis.com"
    port: int = HTTPS_PORT
    ca_file: Path | None = None
    """CA certificates of this host and of the one that gives access tokens; by default the system's."""
    connections: int = 4
    """The limit of HTTP/2 connections, opened on demand."""
    timeout: float = 25.0
    """Seconds to connect, and for an answer."""
