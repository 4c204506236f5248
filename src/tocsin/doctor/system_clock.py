"""Whether the system keeps its clock with that of others."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_TIMEX_BYTES: Final = 512
"""More than the kernel's structure has on any machine; zeros ask and change nothing."""
_UNSYNCHRONIZED: Final = 5
"""TIME_ERROR of adjtimex(2)."""


def clock_is_synchronized() -> bool | None:
    """What the kernel was told by chrony, ntpd or systemd-timesyncd; None where it cannot be asked."""
    if sys.platform != "linux":
        return None
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _UNSYNCHRONIZED
