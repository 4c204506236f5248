"""Settings of Web Push services."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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
