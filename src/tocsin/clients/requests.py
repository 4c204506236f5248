"""Requests to a client, and its answers and events."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tocsin.crypto.keys import AuthPrivateKey
from tocsin.errors import ClientError, TocsinError
from tocsin.protocol.error_codes import NOTICE_VERSION, RouterError, encode_error
from tocsin.protocol.messages import Command, Response


class RouterRefused(ClientError):
    """The router answered ERR."""

    def __init__(self, error: RouterError) -> None:
        super().__init__(
            f"the router answered ERR {encode_error(error, NOTICE_VERSION).decode(errors='replace')}"
        )
        self.error = error


class Request(NamedTuple):
    """A command, its entity, and the key that authorizes it."""

    command: Command
    entity_id: bytes = b""
    key: AuthPrivateKey | None = None
    corr_id: bytes | None = None
    """Random unless the command depends on it: then it must never have been used before."""


Outcome: TypeAlias = Response | TocsinError
"""The outcome of a request: the router's answer, including ERR, or the reason why there is none."""


class Answer(NamedTuple):
    """One request and its outcome."""

    request: Request
    outcome: Outcome


class Event(NamedTuple):
    """A message that the router sent on its own."""

    entity_id: bytes
    response: Response
    late: bool = False
    """An answer to a command whose caller no longer waits. A MSG among these still needs its ACK."""
