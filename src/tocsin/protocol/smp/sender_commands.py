"""Commands of the sender of a queue, and of any client (smp.md 6.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final, Self

from tocsin.crypto.keys import AuthPublicKey, auth_key_from_der
from tocsin.errors import LocalProtocolError
from tocsin.protocol.messages import Command, CommandWithBody, Needs
from tocsin.protocol.smp.versions import ENCRYPTED_BLOCK_VERSION, SENDING_PROXY_VERSION
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter


def max_message_bytes(version: int) -> int:
    """The longest SEND body of a version (smp.md 7.1)."""
    if version >= ENCRYPTED_BLOCK_VERSION:
        return 16048
    return 16064 if version >= SENDING_PROXY_VERSION else 16088


MENTION_PRIORITY: Final = 2
"""For mentions and replies."""
HIGHEST_PRIORITY: Final = 3


@dataclass(frozen=True, slots=True)
class MessageFlags:
    """flags = ("T" | "F") *reserved: whether to notify, then bytes that are ignored and kept.

    A digit behind "T" is a priority of direct notifications: routers that do not know it read "T" as before.
    """

    notify: bool
    reserved: bytes = b""

    @classmethod
    def of_priority(cls, priority: int) -> Self:
        """0 does not notify, 1 does; 2 and 3 also notify recipients who want only important messages."""
        if not 0 <= priority <= HIGHEST_PRIORITY:
            raise LocalProtocolError(f"a priority from 0 to {HIGHEST_PRIORITY} is needed, not {priority}")
        return cls(priority > 0, b"%d" % priority if priority > 1 else b"")

    @property
    def priority(self) -> int:
        if not self.notify:
            return 0
        return int(self.reserved[:1]) if self.reserved[:1] in (b"2", b"3") else 1

    def encode(self, out: WireWriter) -> None:
        out.boolean(self.notify).raw(self.reserved)

    @classmethod
    def decode(cls, body: WireReader) -> Self:
        """Read the flags and the space after them."""
        notify, reserved = body.boolean(), body.until(b" ")
        body.expect(b" ")
        return cls(notify, reserved)


@dataclass(frozen=True, slots=True)
class SetsSenderKey(CommandWithBody):
    """Base of KEY, SKEY and LKEY: `key(sender)`."""

    sender_key: AuthPublicKey

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.short_bytes(self.sender_key.der)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(auth_key_from_der(body.short_bytes()))


@dataclass(frozen=True, slots=True)
class SecureQueueBySender(SetsSenderKey):
    """SKEY: the sender sets its own key."""

    tag: ClassVar[bytes] = b"SKEY"


@dataclass(frozen=True, slots=True)
class SendMessage(CommandWithBody):
    """SEND: `"SEND " flags SP tail(body)`; the body is opaque and may be empty."""

    tag: ClassVar[bytes] = b"SEND"
    needs: ClassVar[Needs] = Needs.ENTITY_MAYBE_AUTH

    flags: MessageFlags
    body: bytes = field(repr=False)

    def encode_body(self, out: WireWriter, version: int) -> None:
        self.flags.encode(out)
        out.raw(b" ").raw(self.body)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(MessageFlags.decode(body), body.rest())


@dataclass(frozen=True, slots=True)
class SecureLinkedQueue(SetsSenderKey):
    """LKEY: as SKEY, addressed by link id; answered with the link data."""

    tag: ClassVar[bytes] = b"LKEY"


@dataclass(frozen=True, slots=True)
class GetLinkData(Command):
    """LGET"""

    tag: ClassVar[bytes] = b"LGET"
    needs: ClassVar[Needs] = Needs.ENTITY
