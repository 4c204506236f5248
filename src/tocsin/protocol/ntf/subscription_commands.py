"""Commands about a subscription to one queue's notifications (ntf.md 2.1, 2.10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

from tocsin.crypto.keys import AuthPrivateKey, private_key_from_der
from tocsin.errors import DecodeError
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.messages import Command, CommandWithBody, Needs
from tocsin.wire.base64url import decode_base64url, encode_base64url
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter


class NotifierQueue(NamedTuple):
    """A queue at an SMP router. Wire: smpServer bs(notifierId); text: smp://…/notifierId"""

    router: RouterLocation
    notifier_id: bytes

    def __repr__(self) -> str:
        """Without the id."""
        return f"NotifierQueue({self.router!r})"

    def encode(self, out: WireWriter) -> None:
        self.router.encode(out)
        out.short_bytes(self.notifier_id)

    @classmethod
    def decode(cls, body: WireReader) -> Self:
        return cls(RouterLocation.decode(body).with_legacy_onion(), body.short_id())

    def text(self) -> str:
        return f"{self.router.text(Scheme.SMP)}/{encode_base64url(self.notifier_id)}"

    @classmethod
    def parse(cls, text: str) -> Self:
        address_text, slash, notifier_id = text.rpartition("/")
        if not slash:
            raise DecodeError("a notifier id is expected after the router address")
        address = RouterAddress.parse(address_text)
        if address.scheme is not Scheme.SMP:
            raise DecodeError("notifications come from an smp address")
        return cls(address.location.with_legacy_onion(), decode_base64url(notifier_id))


@dataclass(frozen=True, slots=True)
class SubscribeToQueue(CommandWithBody):
    """SNEW: `"SNEW S" bs(tokenId) smpServer bs(notifierId) privateKey(notifierKey)`

    It carries the notifier's private key, so that the router can send NSUB.
    """

    tag: ClassVar[bytes] = b"SNEW"
    needs: ClassVar[Needs] = Needs.AUTH

    token_id: bytes
    queue: NotifierQueue
    notifier_key: AuthPrivateKey

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.raw(b"S").short_bytes(self.token_id)
        self.queue.encode(out)
        out.short_bytes(self.notifier_key.der)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        body.expect(b"S")
        return cls(body.short_bytes(), NotifierQueue.decode(body), private_key_from_der(body.short_bytes()))


@dataclass(frozen=True, slots=True)
class CheckSubscription(Command):
    """SCHK"""

    tag: ClassVar[bytes] = b"SCHK"


@dataclass(frozen=True, slots=True)
class DeleteSubscription(Command):
    """SDEL"""

    tag: ClassVar[bytes] = b"SDEL"
