"""The base of all commands, responses and events of both protocols.

A message is its tag and, if it has parameters, a space and its body. One class holds everything about a message:
fields, tag, who may send it with which credentials, encode and decode. A `MessageTable` finds the class by tag.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import ClassVar, Generic, Self, TypeVar, assert_never

from tocsin.errors import BadKey, DecodeError
from tocsin.protocol.error_codes import CommandFault
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter


class UnknownTag(DecodeError):
    """A message whose tag is not known in this direction."""


class Needs(Enum):
    """The credentials that a command needs (smp.md 6.2, ntf.md 1.7)."""

    AUTH = auto()
    """Authorization, and no entity: it is about to be created."""
    AUTH_AND_ENTITY = auto()
    ENTITY_MAYBE_AUTH = auto()
    ENTITY = auto()
    """An entity, and no authorization."""
    NOTHING = auto()

    def fault(self, *, auth: bool, entity: bool) -> CommandFault | None:
        """Return the error in a transmission with these credentials, if any."""
        match self:
            case Needs.AUTH:
                return CommandFault.NO_AUTH if not auth else CommandFault.HAS_AUTH if entity else None
            case Needs.AUTH_AND_ENTITY:
                return None if auth and entity else CommandFault.NO_AUTH
            case Needs.ENTITY_MAYBE_AUTH:
                return None if entity else CommandFault.NO_ENTITY
            case Needs.ENTITY:
                return CommandFault.NO_ENTITY if not entity else CommandFault.HAS_AUTH if auth else None
            case Needs.NOTHING:
                return CommandFault.HAS_AUTH if auth or entity else None
            case _:
                assert_never(self)


class ServiceSigning(Enum):
    """The signature of a service's session key in a service session (smp.md 5.4)."""

    NEVER = auto()
    BESIDE = auto()
    """A second signature, next to the authorization by the queue's key."""
    ALONE = auto()
    """The authorization itself."""


class Message:
    """Base of all messages. A message without parameters needs only a tag."""

    __slots__ = ()
    tag: ClassVar[bytes]
    has_body: ClassVar[bool] = False
    bare_before: ClassVar[int] = 0
    """A message with a body has none before this version."""

    def encode(self, version: int) -> bytes:
        return self.tag

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        """Raises `DecodeError` or `BadKey`."""
        return cls()


class MessageWithBody(Message):
    """A message with parameters."""

    __slots__ = ()
    has_body: ClassVar[bool] = True

    def encode(self, version: int) -> bytes:
        out = WireWriter(self.tag + b" ")
        self.encode_body(out, version)
        return out.done()

    def encode_body(self, out: WireWriter, version: int) -> None:
        raise TypeError(f"{type(self).__name__} does not say how its body is encoded")


class Command(Message):
    """Sent by a client."""

    __slots__ = ()
    needs: ClassVar[Needs] = Needs.AUTH_AND_ENTITY
    service_signing: ClassVar[ServiceSigning] = ServiceSigning.NEVER


class CommandWithBody(MessageWithBody, Command):
    __slots__ = ()


class EntityRule(Enum):
    """Whether a response names an entity (smp.md 6.4)."""

    EMPTY = auto()
    PRESENT = auto()
    ANY = auto()

    def fault(self, *, entity: bool) -> CommandFault | None:
        match self:
            case EntityRule.EMPTY:
                return CommandFault.HAS_AUTH if entity else None
            case EntityRule.PRESENT:
                return None if entity else CommandFault.NO_ENTITY
            case EntityRule.ANY:
                return None
            case _:
                assert_never(self)


class Response(Message):
    """Sent by a router: an answer, or an event when its correlation id is empty."""

    __slots__ = ()
    entity: ClassVar[EntityRule] = EntityRule.PRESENT


class ResponseWithBody(MessageWithBody, Response):
    __slots__ = ()


M = TypeVar("M", bound=Message)


class MessageTable(Generic[M]):
    """The messages of one protocol and direction, by tag.

    Messages without parameters are decoded by one look-up, and so are those named as `frequent`, which must be
    encoded alike in all versions that can decode them.
    """

    def __init__(self, *kinds: type[M], frequent: Mapping[bytes, M] | None = None) -> None:
        self._kinds: dict[bytes, type[M]] = {}
        self._ready: dict[bytes, M] = {**frequent} if frequent else {}
        for kind in kinds:
            if kind.tag in self._kinds:
                raise TypeError(f"two messages with the tag {kind.tag!r}")
            self._kinds[kind.tag] = kind
            if not kind.has_body:
                self._ready[kind.tag] = kind()
        self._longest_ready = max(map(len, self._ready))

    @property
    def kinds(self) -> tuple[type[M], ...]:
        return tuple(self._kinds.values())

    def extended(self, *kinds: type[M]) -> MessageTable[M]:
        """Return a table with these messages added. They replace messages with the same tag."""
        tags = {kind.tag for kind in kinds}
        kept = [kind for kind in self._kinds.values() if kind.tag not in tags]
        frequent = {
            data: message
            for data, message in self._ready.items()
            if data not in self._kinds and data.partition(b" ")[0] not in tags
        }
        return MessageTable(*kept, *kinds, frequent=frequent)

    def decode(self, data: bytes, version: int) -> M:
        """Raises `UnknownTag`, or `DecodeError` if the tag is known and the rest does not fit it."""
        if len(data) <= self._longest_ready:  # looking up a long message would hash all of it
            ready = self._ready.get(data)
            if ready is not None:
                return ready
        space = data.find(b" ")
        tag = data if space < 0 else data[:space]
        kind = self._kinds.get(tag)
        if kind is None:
            raise UnknownTag(f"unknown tag {tag[:16]!r}")
        if space < 0 and version < kind.bare_before:
            return kind()
        if space < 0 or not kind.has_body:
            raise DecodeError(f"{tag.decode('ascii')} with wrong parameters")
        body = WireReader(data, space + 1)
        try:
            message = kind.decode_body(body, version)
        except BadKey as error:
            raise DecodeError(str(error)) from error
        body.expect_end()
        return message
