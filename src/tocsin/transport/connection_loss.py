"""Reasons why a connection ended."""

from __future__ import annotations

import ssl
from enum import StrEnum
from typing import Final

from tocsin.errors import ConnectionLost


class LossReason(StrEnum):
    """How an open connection ended."""

    CLOSED_BY_PEER = "closed by the peer between blocks"
    CLOSED_INSIDE_BLOCK = "closed by the peer inside a block"
    RESET = "reset"
    TLS_ERROR = "TLS error"
    CLOSED_LOCALLY = "closed by this side"


CLOSED_BY_PEER: Final = (LossReason.CLOSED_BY_PEER, LossReason.CLOSED_INSIDE_BLOCK)


class BlockConnectionLost(ConnectionLost):
    """An open connection ended; `reason` says how."""

    def __init__(self, reason: LossReason, detail: str = "") -> None:
        super().__init__(f"connection {reason}: {detail}" if detail else f"connection {reason}")
        self.reason = reason


def loss_reason(error: OSError, *, inside_block: bool) -> LossReason:
    """Translate a failed read or write into the reason of the connection's end."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return LossReason.CLOSED_INSIDE_BLOCK if inside_block else LossReason.CLOSED_BY_PEER
    return LossReason.TLS_ERROR if isinstance(error, ssl.SSLError) else LossReason.RESET
