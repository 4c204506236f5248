"""Push providers and their device tokens (ntf.md 2.4)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Self

from tocsin.errors import DecodeError
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress, is_large_next, is_reference_form
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter


class PushProvider(Enum):
    """The value is the provider's name on the wire."""

    APNS_DEV = b"AD"
    APNS_PROD = b"AP"
    APNS_TEST = b"AT"
    APNS_NULL = b"AN"
    WEBPUSH = b"WP"
    FCM = b"FC"

    @property
    def text(self) -> str:
        return self.name.lower()


_BY_TEXT: Final = {provider.text: provider for provider in PushProvider}
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})+")
_REGISTRATION: Final = re.compile(rb"[A-Za-z0-9_:-]{20,255}")
NULL_TOKEN_TEXT: Final = "apns_null test_ntf_token"  # noqa: S105 - everybody knows it


@dataclass(frozen=True, slots=True)
class DeviceToken:
    """deviceToken = provider (2 bytes, no length) bs(token), or one of the forms of Web Push (`web_push_tokens`).

    The router checks the content of the token.
    """

    provider: PushProvider
    token: bytes = field(repr=False)

    def encode(self, out: WireWriter) -> None:
        out.raw(self.provider.value)
        if self.provider is not PushProvider.WEBPUSH:
            out.short_bytes(self.token)
        elif is_reference_form(self.token):
            WebPushAddress.parse(self.token).encode_fields(out)
        else:
            out.large_bytes(self.token)

    @classmethod
    def decode(cls, body: WireReader) -> Self:
        name = body.take(2)
        try:
            provider = PushProvider(name)
        except ValueError as error:
            raise DecodeError(f"unknown push provider {name!r}") from error
        if provider is not PushProvider.WEBPUSH:
            return cls(provider, body.short_bytes())
        if is_large_next(body):
            return cls(provider, body.large_bytes())
        return cls(provider, WebPushAddress.decode_fields(body).token())

    @property
    def is_reference_web_push(self) -> bool:
        """Whether pushes have the form of the reference's Web Push."""
        return self.provider is PushProvider.WEBPUSH and is_reference_form(self.token)

    def text(self) -> str:
        """Store logs and databases: `apns_prod 0123…`."""
        return f"{self.provider.text} {self.token.decode('latin-1')}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse more strictly than the wire: tokens as their providers issue them, or the null token."""
        name, _, token = text.partition(" ")
        if name == PushProvider.WEBPUSH.text:
            return cls(PushProvider.WEBPUSH, WebPushAddress.parse(token.encode()).token())
        if name == PushProvider.FCM.text:
            if not is_registration_token(token.encode()):
                raise DecodeError(
                    "not a registration token of Firebase: 20 to 255 letters, digits, _, : and - are expected"
                )
            return cls(PushProvider.FCM, token.encode("ascii"))
        if text != NULL_TOKEN_TEXT and (name not in _BY_TEXT or not _HEX.fullmatch(token)):
            raise DecodeError("not a device token: a provider and a token in hex are expected")
        return cls(_BY_TEXT[name], token.encode("ascii"))


def is_registration_token(token: bytes) -> bool:
    """Whether it looks like a registration token of Firebase, which is opaque: 142 to 163 characters today."""
    return _REGISTRATION.fullmatch(token) is not None
