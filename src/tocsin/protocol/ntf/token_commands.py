"""Commands about a device token (ntf.md 2.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

from tocsin.crypto.keys import AuthPublicKey, X25519PublicKey, auth_key_from_der, dh_key_from_der
from tocsin.protocol.messages import Command, CommandWithBody, Needs
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter


@dataclass(frozen=True, slots=True)
class RegisterToken(CommandWithBody):
    """TNEW: `"TNEW T" deviceToken key(verifyKey) key(clientDhKey)`"""

    tag: ClassVar[bytes] = b"TNEW"
    needs: ClassVar[Needs] = Needs.AUTH

    token: DeviceToken
    verify_key: AuthPublicKey
    dh_key: X25519PublicKey

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.raw(b"T")
        self.token.encode(out)
        out.short_bytes(self.verify_key.der).short_bytes(self.dh_key.der)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        body.expect(b"T")
        token = DeviceToken.decode(body)
        return cls(token, auth_key_from_der(body.short_bytes()), dh_key_from_der(body.short_bytes()))


@dataclass(frozen=True, slots=True)
class VerifyToken(CommandWithBody):
    """TVFY: the device returns the code it received in the verification push."""

    tag: ClassVar[bytes] = b"TVFY"

    code: bytes = field(repr=False)

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.short_bytes(self.code)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.short_bytes())


@dataclass(frozen=True, slots=True)
class CheckToken(Command):
    """TCHK"""

    tag: ClassVar[bytes] = b"TCHK"


@dataclass(frozen=True, slots=True)
class ReplaceToken(CommandWithBody):
    """TRPL: the provider gave the device another token."""

    tag: ClassVar[bytes] = b"TRPL"

    token: DeviceToken

    def encode_body(self, out: WireWriter, version: int) -> None:
        self.token.encode(out)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(DeviceToken.decode(body))


@dataclass(frozen=True, slots=True)
class DeleteToken(Command):
    """TDEL"""

    tag: ClassVar[bytes] = b"TDEL"


@dataclass(frozen=True, slots=True)
class SetPeriodicPush(CommandWithBody):
    """TCRN: push every `minutes` minutes; 0 stops it."""

    tag: ClassVar[bytes] = b"TCRN"

    minutes: int

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.u16(self.minutes)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.u16())
