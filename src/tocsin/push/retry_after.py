"""The header `Retry-After` of a provider's answer (RFC 9110, 10.2.3): pure."""

from __future__ import annotations

from typing import Final

MAX_RETRY_AFTER_SECONDS: Final = 3600.0


def retry_after_seconds(value: bytes | None) -> float | None:
    """A date is not understood and counts as none, and so does 0: it would have us try for ever at once."""
    if value is None or not value.isdigit() or len(value) > 9:
        return None
    return min(float(value), MAX_RETRY_AFTER_SECONDS) or None
