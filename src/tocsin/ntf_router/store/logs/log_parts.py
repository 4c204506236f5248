"""Parts that several kinds of lines of an NTF router's logs have (ntf.md 2.4 to 2.10)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tocsin.durable.log_fields import BadLogLine, decode_field
from tocsin.errors import DecodeError
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import (
    SubscriptionStatus,
    TokenStatus,
    parse_subscription_status,
    subscription_status_text,
)
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ntf.versions import INVALID_REASON_VERSION

_PROVIDERS: Final = {provider.text.encode(): provider for provider in PushProvider}
_FLAGS: Final = {b"T": True, b"F": False}
_KEPT_ADDRESSES: Final = 4096


def decode_flag(text: bytes) -> bool:
    if text not in _FLAGS:
        raise BadLogLine("a flag that is neither T nor F")
    return _FLAGS[text]


def decode_queue(text: bytes) -> NotifierQueue:
    address, _, notifier_id = text.rpartition(b"/")
    return NotifierQueue(decode_router(address), decode_field(notifier_id))


def encode_device_token(token: DeviceToken) -> bytes:
    return token.text().encode("latin-1")


def decode_device_token(provider: bytes, token: bytes) -> DeviceToken:
    """Less strict than the reference, which refuses what is not hex: our test provider takes any word."""
    if provider not in _PROVIDERS or not token:
        raise BadLogLine("a device token that is none")
    return DeviceToken(_PROVIDERS[provider], token)


def encode_token_status(status: TokenStatus) -> bytes:
    return status.text(INVALID_REASON_VERSION).encode()


def decode_token_status(text: bytes) -> TokenStatus:
    try:
        return TokenStatus.parse(text.decode())
    except (DecodeError, UnicodeDecodeError):
        raise BadLogLine("an unknown token status") from None


def encode_subscription_status(status: SubscriptionStatus) -> bytes:
    """The text of an error comes from elsewhere: it must not end the line."""
    return " ".join(subscription_status_text(status).splitlines()).encode("utf-8", "replace")


def decode_subscription_status(text: bytes) -> SubscriptionStatus:
    try:
        return parse_subscription_status(text.decode())
    except (DecodeError, UnicodeDecodeError):
        raise BadLogLine("an unknown subscription status") from None


@lru_cache(_KEPT_ADDRESSES)
def decode_router(text: bytes) -> RouterLocation:
    try:
        address = RouterAddress.parse(text.decode())
    except (DecodeError, UnicodeDecodeError):
        raise BadLogLine("an address that is none") from None
    if address.scheme is not Scheme.SMP or address.password is not None:
        raise BadLogLine("an address that is not one of an SMP router")
    return address.location.with_legacy_onion()
