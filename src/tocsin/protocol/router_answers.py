"""OK and ERR, the same in both protocols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from tocsin.protocol.error_codes import RouterError, decode_error, encode_error
from tocsin.protocol.messages import EntityRule, Response, ResponseWithBody
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter


@dataclass(frozen=True, slots=True)
class Done(Response):
    """OK"""

    tag: ClassVar[bytes] = b"OK"


@dataclass(frozen=True, slots=True)
class Refused(ResponseWithBody):
    """ERR: why a command was refused or, as an event, why a subscription ended."""

    tag: ClassVar[bytes] = b"ERR"
    entity: ClassVar[EntityRule] = EntityRule.ANY

    error: RouterError

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.raw(encode_error(self.error, version))

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(decode_error(body))
