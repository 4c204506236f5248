"""What an error means for whoever got it: try again, start anew, or give up (ntf.md 6.2)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from tocsin.clients import RouterRefused
from tocsin.errors import HandshakeRefused, ResponseTimeout, TocsinError, TransportError
from tocsin.protocol.error_codes import ErrorCode, RouterError, StoreFault


class ErrorKind(Enum):
    TEMPORARY = "temporary"
    """The same request may succeed later."""
    AUTH = "AUTH"
    """The router does not know the entity, or the key does not fit."""
    PERMANENT = "permanent"
    """It will not succeed."""


# The router, its network or its address may be better in a while. HandshakeRefused: it may be updated.
_TEMPORARY: Final = (TransportError, ResponseTimeout, HandshakeRefused)


def error_kind(error: TocsinError) -> ErrorKind:
    """For the token's commands, which a person waits for."""
    if isinstance(error, _TEMPORARY):
        return ErrorKind.TEMPORARY
    if isinstance(error, RouterRefused) and error.error is ErrorCode.AUTH:
        return ErrorKind.AUTH
    return ErrorKind.PERMANENT


def worker_error_kind(error: TocsinError) -> ErrorKind:
    """For workers, which have time: a router whose database fails is asked again, unlike in the reference."""
    if isinstance(error, RouterRefused) and _of_the_router_itself(error.error):
        return ErrorKind.TEMPORARY
    return error_kind(error)


def _of_the_router_itself(error: RouterError) -> bool:
    return error is ErrorCode.INTERNAL or isinstance(error, StoreFault)
