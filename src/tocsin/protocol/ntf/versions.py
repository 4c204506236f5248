"""NTF versions by what each added (ntf.md 1.2)."""

from __future__ import annotations

from typing import Final

from tocsin.wire.versions import VersionRange

BATCHES_VERSION: Final = 2
"""Several transmissions per block, session id implied, signed session key in the hello."""
INVALID_REASON_VERSION: Final = 3

SUPPORTED: Final = VersionRange(1, 3)
WITHOUT_ALPN: Final = VersionRange(1, 1)
