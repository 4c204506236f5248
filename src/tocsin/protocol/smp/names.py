"""Names that a router resolves for its clients (v20, v7.md 3): RSLV, RNAME, and the record inside."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

from tocsin.errors import DecodeError
from tocsin.protocol.messages import CommandWithBody, EntityRule, Needs, ResponseWithBody
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

MAX_NAME_BYTES: Final = 253
MAX_LABEL_BYTES: Final = 63
_END: Final = re.compile(rb"[ \t\n\v\f\r]")
_LABEL: Final = re.compile(rb"[a-z0-9]+(?:-[a-z0-9]+)*")

_TEXTS: Final = ("name", "nickname", "website", "location")
_LINKS: Final = ("simplexContact", "simplexChannel")
_ADDRESSES: Final = ("eth", "btc", "xmr", "dot")
_KEEPERS: Final = ("owner", "resolver")


def parse_name(data: bytes) -> str:
    """Return the name in small letters. Raises DecodeError.

    At least two labels of letters, digits and single hyphens inside, joined by dots.
    """
    if len(data) > MAX_NAME_BYTES:
        raise DecodeError("a name that is too long")
    labels = data.lower().split(b".")
    if len(labels) < 2:
        raise DecodeError("a name without a dot")
    if any(len(label) > MAX_LABEL_BYTES or not _LABEL.fullmatch(label) for label in labels):
        raise DecodeError("a name with a label that is no domain label")
    return b".".join(labels).decode("ascii")


@dataclass(frozen=True, slots=True)
class ResolveName(CommandWithBody):
    """RSLV: `"RSLV " domain`, without a length. White space ends it, and what follows is ignored."""

    tag: ClassVar[bytes] = b"RSLV"
    needs: ClassVar[Needs] = Needs.NOTHING

    name: str
    """Valid, and in small letters."""

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.raw(self.name.encode("ascii"))

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(parse_name(_END.split(body.rest(), 1)[0]))


@dataclass(frozen=True, slots=True)
class NameResolved(ResponseWithBody):
    """RNAME: `"RNAME " JSON`, the record of the name."""

    tag: ClassVar[bytes] = b"RNAME"
    entity: ClassVar[EntityRule] = EntityRule.EMPTY

    json: bytes = field(repr=False)

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.raw(self.json)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.rest())


def name_record(text: bytes) -> bytes:
    """Return the record of a name as clients get it: known members only, in their order. Raises DecodeError.

    Members that are missing are unset. Members of another type are an error.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DecodeError("a record that is not JSON") from error
    if not isinstance(found, dict):
        raise DecodeError("a record that is not an object")
    record = {
        **{key: _text(found.get(key, "")) for key in _TEXTS},
        **{key: _links(found.get(key, [])) for key in _LINKS},
        **{key: None if found.get(key) is None else _text(found[key]) for key in _ADDRESSES},
        **{key: _text(found.get(key, "")) for key in _KEEPERS},
    }
    try:
        return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:  # half of a character, as an escape
        raise DecodeError("a record with text that is not Unicode") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise DecodeError("a record with a member that is not text")
    return value


def _links(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise DecodeError("a record with links that are no array")
    return [_text(each) for each in value]
