"""Lines of a hand-over: due pushes from the router to the `deliver` job, and outcomes back.

A due push shows only a number and a keyed hash of the token, by which the job spreads tokens over executors. The rest
is sealed, because it holds device tokens and keys. An outcome holds no secrets.
"""

from __future__ import annotations

import binascii
import hashlib
from typing import Final, NamedTuple

import msgspec

from tocsin.crypto.boxes import NONCE_BYTES, BoxKey, seal, unseal
from tocsin.errors import DecodeError
from tocsin.ntf_router.delivery.pushes import choose_notifications, message_request
from tocsin.ntf_router.store.records import DuePush, LastNotification, PendingNotification, TokenRecord
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import InvalidReason, TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.push.provider import (
    Accepted,
    PushOutcome,
    PushRefused,
    PushRequest,
    RetryLater,
    RetryScope,
    TokenInvalid,
)

TOO_LARGE: Final = "too_large"

_PROVIDERS: Final = {each.text: each for each in PushProvider}
_ACTIVE: Final = TokenStatus(TokenState.ACTIVE)
_NO_QUEUE: Final = NotifierQueue(RouterLocation((), "", b""), b"")
"""Stands for the queue. The choice of notifications for a push does not need it, so it is not handed over."""


class HandedNotification(msgspec.Struct, frozen=True, array_like=True, gc=False):
    received_at: float
    nonce: bytes
    text: bytes
    subscription_id: bytes
    """Empty if the notification is not pending, because it was pushed before."""


class HandedOver(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Everything needed to push to one token."""

    provider: str
    device_token: bytes
    dh_secret: bytes
    nonce: bytes
    """The nonce of the encryption. It is handed over so that a repeated push has the same bytes."""
    ttl: float
    notifications: tuple[HandedNotification, ...]
    """Oldest first."""

    def __repr__(self) -> str:
        """Omit the device token, keys and ids."""
        return f"HandedOver({self.provider}, {len(self.notifications)} notifications)"


class HandedLine(msgspec.Struct, frozen=True, gc=False):
    """A line whose box is still sealed."""

    id: str
    token: str
    box: bytes
    """Base64 in the file."""

    def shard(self, shards: int) -> int:
        """Return the shard of the token: all its lines have the same."""
        return int(self.token, 16) % shards


def handover_line(
    number: str, due: DuePush, key: BoxKey, nonce: bytes, ttl: float, box_nonce: bytes
) -> bytes:
    """Return the line of a due push, with its line end. `nonce` is for the push, `box_nonce` for the line."""
    token = due.token
    handed = HandedOver(
        token.device_token.provider.text,
        token.device_token.token,
        token.dh_secret,
        nonce,
        ttl,
        tuple(
            HandedNotification(
                each.received_at,
                each.nonce,
                each.text,
                each.subscription_id if isinstance(each, PendingNotification) else b"",
            )
            for each in due.notifications
        ),
    )
    box = box_nonce + seal(key, box_nonce, _PACKER.encode(handed))
    hashed = hashlib.blake2b(token.token_id, digest_size=8, key=key).hexdigest()
    return b'{"id":"%b","token":"%b","box":"%b"}\n' % (
        number.encode(),
        hashed.encode(),
        binascii.b2a_base64(box, newline=False),
    )


_PROBE: Final = "-probe"


def probe_number(number: str) -> str:
    return number + _PROBE


def is_probe(number: str) -> bool:
    return number.endswith(_PROBE)


def probe_line(number: str) -> bytes:
    """Return a line without a push. A job that works answers it, with any outcome."""
    return b'{"id":"%b","token":"0","box":""}\n' % number.encode()


def read_line(line: bytes) -> HandedLine:
    """Raises DecodeError."""
    try:
        return _LINES.decode(line)
    except msgspec.MsgspecError as error:
        raise DecodeError("not a line of a hand-over") from error


def opened(line: HandedLine, key: BoxKey) -> HandedOver:
    """Open the box of a line. Raises BadBox if the key is not the router's, DecodeError for another version."""
    try:
        return _UNPACKER.decode(unseal(key, line.box[:NONCE_BYTES], line.box[NONCE_BYTES:]))
    except msgspec.MsgspecError as error:
        raise DecodeError("the hand-over was written by another version of Tocsin") from error


class Composed(NamedTuple):
    """The push for a hand-over."""

    provider: PushProvider
    request: PushRequest | None
    """None if the oldest pending notification is larger than a push."""
    taken: int
    """The number of pending notifications, oldest first, that get the outcome."""
    more: bool
    """Whether other notifications had no room."""


def compose(handed: HandedOver) -> Composed:
    """Return the push that the inline engine would send."""
    last: list[LastNotification] = [
        PendingNotification(each.received_at, each.nonce, each.text, each.subscription_id, _NO_QUEUE)
        if each.subscription_id
        else LastNotification(each.received_at, each.nonce, each.text)
        for each in handed.notifications
    ]
    provider = _PROVIDERS.get(handed.provider)
    if provider is None:
        raise DecodeError(
            f"unknown provider {handed.provider!r}: the hand-over was written by another version of Tocsin"
        )
    # A push needs only these fields of a token, so only they are handed over.
    device_token = DeviceToken(provider, handed.device_token)
    token = TokenRecord(b"", device_token, _ACTIVE, b"", b"", dh_secret=handed.dh_secret, code=b"")
    push = choose_notifications(token, last)
    if push is None:
        raise DecodeError("the hand-over has no pending notification")
    if not push.chosen:
        return Composed(provider, None, 1, more=True)
    request = message_request(push, handed.nonce, handed.ttl)
    return Composed(provider, request, len(push.pending), push.more)


class Returned(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The job's answer to one line."""

    id: str
    outcome: str
    reason: str = ""
    since: float | None = None
    scope: str = ""
    after: float | None = None
    taken: int = 0
    more: bool = False

    def push_outcome(self) -> PushOutcome:
        """Raises DecodeError."""
        try:
            match self.outcome:
                case "accepted":
                    return Accepted()
                case "invalid":
                    return TokenInvalid(InvalidReason(self.reason), self.since)
                case "retry":
                    return RetryLater(self.reason, RetryScope(self.scope), self.after)
                case "refused":
                    return PushRefused(self.reason)
        except ValueError as error:
            raise DecodeError("the outcome was written by another version of Tocsin") from error
        raise DecodeError(
            f"unknown outcome {self.outcome[:20]!r}: it was written by another version of Tocsin"
        )


def returned(number: str, composed: Composed | None, outcome: PushOutcome) -> Returned:
    """Make the job's answer. `composed` is None if the line could not be read."""
    taken, more = (0, False) if composed is None else (composed.taken, composed.more)
    match outcome:
        case Accepted():
            return Returned(number, "accepted", taken=taken, more=more)
        case TokenInvalid(reason, since):
            return Returned(number, "invalid", reason.value, since=since, taken=taken, more=more)
        case RetryLater(reason, scope, after):
            return Returned(number, "retry", reason, scope=scope.value, after=after, taken=taken, more=more)
        case PushRefused(reason):
            return Returned(number, "refused", reason, taken=taken, more=more)


def encode_returned(lines: list[Returned]) -> bytes:
    return _JSON.encode_lines(lines)


def decode_returned(line: bytes) -> Returned:
    """Raises DecodeError."""
    try:
        return _RETURNED.decode(line)
    except msgspec.MsgspecError as error:
        raise DecodeError("not a line of outcomes") from error


_PACKER: Final = msgspec.msgpack.Encoder()
_UNPACKER: Final = msgspec.msgpack.Decoder(HandedOver)
_LINES: Final = msgspec.json.Decoder(HandedLine)
_JSON: Final = msgspec.json.Encoder()
_RETURNED: Final = msgspec.json.Decoder(Returned)
