"""Output of an agent's commands: text for people, or JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tocsin.agent.runtime import events
from tocsin.agent.runtime.events import AgentEvent, MessageArrived, MessageUnreadable
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.ntf.statuses import TokenStatus
from tocsin.wire.base64url import encode_base64url

PIPE_WIDTH: Final = 200

EVENT_NAMES: Final[dict[type[AgentEvent], str]] = {
    events.TokenRecreated: "token recreated",
    events.TokenStatusChanged: "token status",
    events.TokenNotDeleted: "token not deleted",
    events.NotificationsFailed: "notifications failed",
    events.NotificationsReady: "notifications ready",
    events.NotificationsRemoved: "notifications removed",
    events.ConnectionReady: "connection ready",
    events.MessageArrived: "message",
    events.MessageUnreadable: "message unreadable",
    events.QueueRotated: "queue rotated",
    events.SubscriptionTaken: "subscription taken",
    events.RouterDown: "router down",
    events.RouterUp: "router up",
    events.AgentTrouble: "trouble",
}
_FIELD_NAMES: Final = {"connection_id": "connection"}
_OWN_FIELDS: Final = frozenset({"number"})
"""Fields that mean something in this process only."""


class Output:
    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self._console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)

    def result(self, fields: Mapping[str, Any]) -> None:
        """Print one JSON object on one line, for programs only."""
        if self.as_json:
            print(json.dumps(fields), flush=True)

    def say(self, text: str, style: str = "") -> None:
        """Print a line for people only. Text of a peer must have gone through `harmless`."""
        if not self.as_json:
            self._console.print(Text(text, style), soft_wrap=True)

    def table(self, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        if self.as_json:
            return
        table = Table(*columns)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._console.print(table)

    def event(self, event: AgentEvent) -> None:
        """Print one event, as an object for programs."""
        self.result(event_fields(event))
        self.say_events([event])

    def say_events(self, seen: Iterable[AgentEvent]) -> None:
        """Print events for people. Programs find them in the result."""
        for event in seen:
            self.say(event_sentence(event), "bold" if isinstance(event, MessageArrived) else "")


def event_fields(event: AgentEvent) -> dict[str, Any]:
    """Return the fields of an event; `event` has its name."""
    found: dict[str, Any] = {"event": EVENT_NAMES[type(event)]}
    for each in fields(event):
        if each.name not in _OWN_FIELDS:
            found[_FIELD_NAMES.get(each.name, each.name)] = _plain(getattr(event, each.name))
    if isinstance(event, MessageArrived):
        found |= {"mention": event.is_mention, "text": text_of(event.body)}
    return found


def _plain(value: object) -> Any:
    match value:
        case bytes():
            return encode_base64url(value)
        case TokenStatus():
            return token_status(value)
        case Exception():
            return str(value) or type(value).__name__
        case RouterLocation():
            return f"{value.hosts[0]}:{value.port}" if value.port else value.hosts[0]
        case Enum():
            return value.name.lower().replace("_", " ")
    return value


def event_sentence(event: AgentEvent) -> str:
    if isinstance(event, MessageArrived):
        mention = " (mention)" if event.is_mention else ""
        return f"{event.connection_id} {time_text(event.sent_at)}{mention}: {harmless(text_of(event.body))}"
    if isinstance(event, MessageUnreadable):
        return f"{event.connection_id}: a message cannot be read: {event.reason}"
    found = event_fields(event)
    name = found.pop("event")
    details = ", ".join(f"{key} {value}" for key, value in found.items() if value is not None)
    return f"{name}: {details}"


def text_of(body: bytes) -> str | None:
    """Return None if the body is not text."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def harmless(text: str | None) -> str:
    """Make text safe for terminals: unprintable characters, as in escape sequences, become their codes."""
    if text is None:
        return "(not text; --json shows the bytes)"
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)


def token_status(status: TokenStatus) -> str:
    return status.state.value if status.reason is None else f"{status.state.value},{status.reason.value}"


def time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def address_text(scheme: Scheme, router: RouterLocation) -> str:
    """Return the address without its password, which a location does not have."""
    return str(RouterAddress(scheme, router))
