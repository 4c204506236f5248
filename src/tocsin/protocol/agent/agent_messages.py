"""Contents of the envelopes: set-up of a connection, messages, and the rotation of queues.

message = "I" greeting large(queue URI) | "W" greeting | "U" greeting | "Q" large(queue URI) | "M" tail(body)
greeting = bs(sender's key) bool(secured)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tocsin.crypto.keys import AuthPublicKey, auth_key_from_der
from tocsin.errors import DecodeError
from tocsin.protocol.smp.queue_uris import QueueUri
from tocsin.wire.reader import WireReader, as_text
from tocsin.wire.writer import WireWriter


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first message of a sender in a queue."""

    sender_key: AuthPublicKey
    secured: bool
    """Whether the sender secured the queue itself (SKEY); if not, the recipient does (KEY)."""


@dataclass(frozen=True, slots=True)
class Introduction(Greeting):
    """The joining agent names the queue for answers."""

    reply_queue: QueueUri


@dataclass(frozen=True, slots=True)
class Welcome(Greeting):
    """The answer to an introduction: both sides can send now."""


@dataclass(frozen=True, slots=True)
class QueueInUse(Greeting):
    """The first message in the new queue of a rotation."""


@dataclass(frozen=True, slots=True)
class UseQueue:
    """The recipient asks the sender to use another queue from now on."""

    queue: QueueUri


@dataclass(frozen=True, slots=True)
class Text:
    """A message of the app: any bytes."""

    body: bytes = field(repr=False)


AgentMessage: TypeAlias = Introduction | Welcome | QueueInUse | UseQueue | Text

_TAGS: Final[dict[type[AgentMessage], bytes]] = {
    Introduction: b"I",
    Welcome: b"W",
    QueueInUse: b"U",
    UseQueue: b"Q",
    Text: b"M",
}


def encode_agent_message(message: AgentMessage) -> bytes:
    out = WireWriter(_TAGS[type(message)])
    match message:
        case Text(body):
            out.raw(body)
        case UseQueue(queue):
            out.large_bytes(str(queue).encode())
        case _:
            out.short_bytes(message.sender_key.der).boolean(message.secured)
            if isinstance(message, Introduction):
                out.large_bytes(str(message.reply_queue).encode())
    return out.done()


def decode_agent_message(data: bytes) -> AgentMessage:
    """Raises DecodeError or BadKey. What follows a greeting or a URI is left to later versions and ignored."""
    body = WireReader(data)
    tag = body.take(1)
    if tag == b"M":
        return Text(body.rest())
    if tag == b"Q":
        return UseQueue(_queue_uri(body))
    if tag not in (b"I", b"W", b"U"):
        raise DecodeError(f"{tag!r} is no message of an agent")
    sender_key, secured = auth_key_from_der(body.short_bytes()), body.boolean()
    if tag == b"I":
        return Introduction(sender_key, secured, _queue_uri(body))
    return (Welcome if tag == b"W" else QueueInUse)(sender_key, secured)


def _queue_uri(body: WireReader) -> QueueUri:
    return QueueUri.parse(as_text(body.large_bytes()))
