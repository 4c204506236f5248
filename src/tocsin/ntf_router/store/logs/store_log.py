"""Lines of the store log of an NTF router, `ntf-server-store.log` (ntf.md 5.2; reference: `NtfStoreLogRecord`).

The format is the reference's, so that data moves between its server and ours in both directions. Each class is one kind
of line, with its fields, `encode` and `decode`. Lines do not include the newline.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final, Self, TypeAlias

from tocsin.crypto.keys import X25519PrivateKey
from tocsin.durable.log_fields import (
    FIELD,
    NUMBER,
    BadLogLine,
    LineOfWords,
    OptionalFields,
    WordForm,
    decode_field,
    decode_field_or_empty,
    decode_line,
    decode_number,
    encode_field,
    encode_number,
    exactly,
    labelled,
    not_known,
    with_rest,
)
from tocsin.errors import DecodeError
from tocsin.ntf_router.store.records import SubscriptionRecord, TokenRecord
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import (
    SubscriptionFailed,
    SubscriptionStatus,
    TokenStatus,
    parse_subscription_status,
    subscription_status_text,
)
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ntf.versions import INVALID_REASON_VERSION
from tocsin.protocol.ntf.web_push_tokens import is_reference_form

_KEPT_ADDRESSES: Final = 4096
_NO_SERVICE: Final = b"off"


def encode_token_status(status: TokenStatus) -> bytes:
    return status.text(INVALID_REASON_VERSION).encode()


def decode_token_status(text: bytes) -> TokenStatus:
    try:
        return TokenStatus.parse(text.decode())
    except (DecodeError, UnicodeDecodeError):
        raise not_known("unknown token status") from None


@lru_cache(_KEPT_ADDRESSES)
def decode_router(text: bytes) -> RouterLocation:
    try:
        address = RouterAddress.parse(text.decode())
    except (DecodeError, UnicodeDecodeError):
        raise BadLogLine("not a router address") from None
    if address.scheme is not Scheme.SMP or address.password is not None:
        raise BadLogLine("not the address of an SMP router")
    return address.location.with_legacy_onion()


def _encode_router(router: RouterLocation) -> bytes:
    return router.text(Scheme.SMP).encode()


def _encode_service(service_id: bytes | None) -> bytes:
    return b"service=" + (_NO_SERVICE if service_id is None else encode_field(service_id))


def _decode_service(word: bytes) -> bytes | None:
    text = labelled(word, b"service=")
    return None if text == _NO_SERVICE else decode_field(text)


TOKEN_STATUS: Final = WordForm(encode_token_status, decode_token_status)
ROUTER: Final = WordForm(_encode_router, decode_router)
SERVICE: Final = WordForm(_encode_service, _decode_service)


@dataclass(frozen=True, slots=True)
class TokenAdded:
    """TCREATE tknId= token=provider token tokenStatus= verifyKey= dhKeys=public private dhSecret= regCode= cron=
    [updatedAt=]"""

    tag: ClassVar[bytes] = b"TCREATE"

    token: TokenRecord

    def encode(self) -> bytes:
        token = self.token
        dh_key = X25519PrivateKey(token.dh_private_key)
        words = [
            b"TCREATE tknId=" + encode_field(token.token_id),
            b"token=" + encode_device_token(token.device_token),
            b"tokenStatus=" + encode_token_status(token.status),
            b"verifyKey=" + encode_field(token.verify_key),
            b"dhKeys=" + encode_field(dh_key.public.der) + b" " + encode_field(dh_key.der),
            b"dhSecret=" + encode_field(token.dh_secret),
            b"regCode=" + encode_field(token.code),
            b"cron=" + encode_number(token.cron_minutes),
        ]
        if token.updated_at is not None:
            words.append(b"updatedAt=" + encode_number(token.updated_at))
        return b" ".join(words)

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        words = _with_one_token(words, 2)
        if len(words) < 10:
            raise BadLogLine("TCREATE lacks fields")
        dh_key = decode_field(words[6])
        prefix = X25519PrivateKey.der_prefix
        if not dh_key.startswith(prefix) or len(dh_key) != len(prefix) + X25519PrivateKey.raw_bytes:
            raise BadLogLine("not a DH key")
        labelled(words[5], b"dhKeys=")
        rest = OptionalFields(words[10:])
        token = TokenRecord(
            decode_field(labelled(words[0], b"tknId=")),
            decode_device_token(labelled(words[1], b"token="), words[2]),
            decode_token_status(labelled(words[3], b"tokenStatus=")),
            decode_field(labelled(words[4], b"verifyKey=")),
            dh_key[len(prefix) :],
            decode_field(labelled(words[7], b"dhSecret=")),
            decode_field_or_empty(labelled(words[8], b"regCode=")),
            cron_minutes=decode_number(labelled(words[9], b"cron=")),
            updated_at=decode_number(rest.take()) if rest.skip(b"updatedAt=") else None,
        )
        rest.end()
        return cls(token)


@dataclass(frozen=True, slots=True)
class TokenStatusSet(LineOfWords):
    """TSTATUS tknId status; ACTIVE also removes the token's rivals."""

    tag: ClassVar[bytes] = b"TSTATUS"
    forms = FIELD, TOKEN_STATUS

    token_id: bytes
    status: TokenStatus


@dataclass(frozen=True, slots=True)
class TokenReplaced:
    """TUPDATE tknId provider token code; the status becomes REGISTERED."""

    tag: ClassVar[bytes] = b"TUPDATE"

    token_id: bytes
    device_token: DeviceToken
    code: bytes

    def encode(self) -> bytes:
        device_token = encode_device_token(self.device_token)
        return b" ".join((self.tag, encode_field(self.token_id), device_token, encode_field(self.code)))

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        token_id, provider, token, code = exactly(_with_one_token(words, 2), 4)
        return cls(decode_field(token_id), decode_device_token(provider, token), decode_field_or_empty(code))


@dataclass(frozen=True, slots=True)
class CronSet(LineOfWords):
    """TCRON tknId minutes"""

    tag: ClassVar[bytes] = b"TCRON"
    forms = FIELD, NUMBER

    token_id: bytes
    minutes: int


@dataclass(frozen=True, slots=True)
class TokenUsed(LineOfWords):
    """TTIME tknId seconds"""

    tag: ClassVar[bytes] = b"TTIME"
    forms = FIELD, NUMBER

    token_id: bytes
    day: int


@dataclass(frozen=True, slots=True)
class TokenRemoved(LineOfWords):
    """TDELETE tknId"""

    tag: ClassVar[bytes] = b"TDELETE"
    forms = (FIELD,)

    token_id: bytes


@dataclass(frozen=True, slots=True)
class SubscriptionAdded:
    """SCREATE subId= smpQueue= notifierKey= tknId= subStatus=[ serviceAssoc=T|F]

    The text of an ERR status reaches to the end of the line, so the flag is not written after it: such queues are
    never associated.
    """

    tag: ClassVar[bytes] = b"SCREATE"

    subscription: SubscriptionRecord

    def encode(self) -> bytes:
        subscription = self.subscription
        words = [
            b"SCREATE subId=" + encode_field(subscription.subscription_id),
            b"smpQueue=" + subscription.queue.text().encode(),
            b"notifierKey=" + encode_field(subscription.notifier_key),
            b"tknId=" + encode_field(subscription.token_id),
            b"subStatus=" + encode_subscription_status(subscription.status),
        ]
        if not isinstance(subscription.status, SubscriptionFailed):
            words.append(b"serviceAssoc=T" if subscription.service_associated else b"serviceAssoc=F")
        return b" ".join(words)

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        words = with_rest(words, 5)
        text = labelled(words[4], b"subStatus=")
        flag = b"F"
        if not text.startswith(b"ERR "):
            text, _, rest = text.partition(b" ")
            flag = labelled(rest, b"serviceAssoc=") if rest else b"F"
        return cls(
            SubscriptionRecord(
                decode_field(labelled(words[0], b"subId=")),
                decode_field(labelled(words[3], b"tknId=")),
                decode_queue(labelled(words[1], b"smpQueue=")),
                decode_field(labelled(words[2], b"notifierKey=")),
                decode_subscription_status(text),
                decode_flag(flag),
            )
        )


@dataclass(frozen=True, slots=True)
class SubscriptionStatusSet:
    """SSTATUS subId status[ service=T]"""

    tag: ClassVar[bytes] = b"SSTATUS"

    subscription_id: bytes
    status: SubscriptionStatus
    associated: bool

    def encode(self) -> bytes:
        words = (self.tag, encode_field(self.subscription_id), encode_subscription_status(self.status))
        flag = b" service=T" if self.associated and not isinstance(self.status, SubscriptionFailed) else b""
        return b" ".join(words) + flag

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        subscription_id, text = with_rest(words, 2)
        associated = text.endswith(b" service=T") and not text.startswith(b"ERR ")
        if associated:
            text = text.removesuffix(b" service=T")
        elif not text.startswith(b"ERR "):
            text = text.removesuffix(b" service=F")
        return cls(decode_field(subscription_id), decode_subscription_status(text), associated)


@dataclass(frozen=True, slots=True)
class SubscriptionRemoved(LineOfWords):
    """SDELETE subId"""

    tag: ClassVar[bytes] = b"SDELETE"
    forms = (FIELD,)

    subscription_id: bytes


@dataclass(frozen=True, slots=True)
class ServiceSet(LineOfWords):
    """SERVICE address service=id|off"""

    tag: ClassVar[bytes] = b"SERVICE"
    forms = ROUTER, SERVICE

    router: RouterLocation
    service_id: bytes | None


NtfStoreChange: TypeAlias = (
    TokenAdded
    | TokenStatusSet
    | TokenReplaced
    | CronSet
    | TokenUsed
    | TokenRemoved
    | SubscriptionAdded
    | SubscriptionStatusSet
    | SubscriptionRemoved
    | ServiceSet
)


def decode_ntf_store_line(line: bytes) -> NtfStoreChange:
    """Raises `BadLogLine`."""
    return decode_line(line, _CHANGES)


_CHANGES: Final[dict[bytes, type[NtfStoreChange]]] = {
    change.tag: change
    for change in (
        TokenAdded,
        TokenStatusSet,
        TokenReplaced,
        CronSet,
        TokenUsed,
        TokenRemoved,
        SubscriptionAdded,
        SubscriptionStatusSet,
        SubscriptionRemoved,
        ServiceSet,
    )
}


_PROVIDERS: Final = {provider.text.encode(): provider for provider in PushProvider}
_FLAGS: Final = {b"T": True, b"F": False}


def decode_flag(text: bytes) -> bool:
    if text not in _FLAGS:
        raise BadLogLine("a flag must be T or F")
    return _FLAGS[text]


def decode_queue(text: bytes) -> NotifierQueue:
    address, _, notifier_id = text.rpartition(b"/")
    return NotifierQueue(decode_router(address), decode_field(notifier_id))


def _with_one_token(words: list[bytes], place: int) -> list[bytes]:
    """Join a device token of the reference's Web Push, which is three words, to one."""
    if len(words) > place and is_reference_form(words[place]):
        words[place : place + 3] = [b" ".join(words[place : place + 3])]
    return words


def encode_device_token(token: DeviceToken) -> bytes:
    return token.text().encode("latin-1")


def decode_device_token(provider: bytes, token: bytes) -> DeviceToken:
    """Decode a device token. Unlike the reference this accepts any word, as our test provider does, not only hex."""
    if provider not in _PROVIDERS or not token:
        raise BadLogLine("not a device token")
    return DeviceToken(_PROVIDERS[provider], token)


def encode_subscription_status(status: SubscriptionStatus) -> bytes:
    """Encode a status. The text of an error comes from an SMP router and must not end the line."""
    return " ".join(subscription_status_text(status).splitlines()).encode("utf-8", "replace")


def decode_subscription_status(text: bytes) -> SubscriptionStatus:
    try:
        return parse_subscription_status(text.decode())
    except (DecodeError, UnicodeDecodeError):
        raise not_known("unknown subscription status") from None
