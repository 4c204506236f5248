"""Kinds of errors: try again, start over, or give up (ntf.md 6.2)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from tocsin.clients import Answer, RouterRefused
from tocsin.errors import HandshakeRefused, ResponseTimeout, TocsinError, TransportError
from tocsin.protocol.error_codes import CommandFault, ErrorCode, StoreFault
from tocsin.protocol.messages import Response
from tocsin.protocol.router_answers import Refused


class ErrorKind(Enum):
    TEMPORARY = "temporary"
    """The same request may succeed later."""
    AUTH = "AUTH"
    """The router does not know the entity, or the key does not match."""
    PERMANENT = "permanent"
    """The request will not succeed."""


# The router, its network or its address may recover. HandshakeRefused: the router may be updated.
_TEMPORARY: Final = (TransportError, ResponseTimeout, HandshakeRefused)


def error_kind(error: TocsinError) -> ErrorKind:
    """Classify an error of a token command, which a person waits for."""
    if isinstance(error, _TEMPORARY):
        return ErrorKind.TEMPORARY
    if isinstance(error, RouterRefused):
        if error.error is ErrorCode.AUTH:
            return ErrorKind.AUTH
        if isinstance(error.error, StoreFault):  # as agents of 7.0 do (v7.md 7.2)
            return ErrorKind.TEMPORARY
    return ErrorKind.PERMANENT


def registration_error_kind(error: TocsinError) -> ErrorKind:
    """Classify an error of TNEW, TRPL, TVFY and TCHK: QUOTA means that the router had too many registrations just now.

    The reference gives a token up when TRPL is refused. Its subscriptions would be lost for a reason that passes.
    """
    if isinstance(error, RouterRefused) and error.error is ErrorCode.QUOTA:
        return ErrorKind.TEMPORARY
    return error_kind(error)


def worker_error_kind(error: TocsinError) -> ErrorKind:
    """Classify an error for workers, which also retry when a router had an internal error, unlike the reference."""
    if isinstance(error, RouterRefused) and error.error is ErrorCode.INTERNAL:
        return ErrorKind.TEMPORARY
    return error_kind(error)


def packet_error_kind(error: TocsinError) -> ErrorKind:
    """Classify an error of NSKEY or NPKT: as for other commands of workers, except for two refusals."""
    if isinstance(error, RouterRefused):
        if error.error is ErrorCode.QUOTA:  # too many packets wait at the SMP router
            return ErrorKind.TEMPORARY
        if error.error is CommandFault.PROHIBITED:  # it has no such notifier, or forgot the packet's fate
            return ErrorKind.AUTH
    return worker_error_kind(error)


def outcome_of(answer: Answer) -> Response | TocsinError:
    """Return the response, with ERR as the error that `request` would raise."""
    if isinstance(answer.outcome, Refused):
        return RouterRefused(answer.outcome.error)
    return answer.outcome
