"""Responses of an NTF router (ntf.md 2.2). It sends no events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from tocsin.crypto.keys import X25519PublicKey, dh_key_from_der
from tocsin.protocol.messages import EntityRule, ResponseWithBody
from tocsin.protocol.ntf.statuses import (
    SubscriptionStatus,
    TokenStatus,
    parse_subscription_status,
    subscription_status_text,
)
from tocsin.wire.reader import WireReader, as_text
from tocsin.wire.writer import WireWriter


@dataclass(frozen=True, slots=True)
class TokenRegistered(ResponseWithBody):
    """IDTKN: the answer to TNEW."""

    tag: ClassVar[bytes] = b"IDTKN"
    entity: ClassVar[EntityRule] = EntityRule.EMPTY

    token_id: bytes
    dh_key: X25519PublicKey

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.short_bytes(self.token_id).short_bytes(self.dh_key.der)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.short_id(), dh_key_from_der(body.short_bytes()))


@dataclass(frozen=True, slots=True)
class QueueSubscribed(ResponseWithBody):
    """IDSUB: the answer to SNEW."""

    tag: ClassVar[bytes] = b"IDSUB"
    entity: ClassVar[EntityRule] = EntityRule.EMPTY

    subscription_id: bytes

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.short_bytes(self.subscription_id)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.short_id())


@dataclass(frozen=True, slots=True)
class TokenChecked(ResponseWithBody):
    """TKN: the answer to TCHK."""

    tag: ClassVar[bytes] = b"TKN"

    status: TokenStatus

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.raw(self.status.text(version).encode())

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(TokenStatus.parse(as_text(body.rest())))


@dataclass(frozen=True, slots=True)
class SubscriptionChecked(ResponseWithBody):
    """SUB: the answer to SCHK."""

    tag: ClassVar[bytes] = b"SUB"

    status: SubscriptionStatus

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.raw(subscription_status_text(self.status).encode())

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(parse_subscription_status(as_text(body.rest())))
