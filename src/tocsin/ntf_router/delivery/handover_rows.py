"""Rows of a hand-over: notifications and other pushes from the router to the `deliver` job.

A row shows what the job needs to spread and merge rows: keyed hashes of token, queue and notification, the provider,
and times. Contents, device token and keys are sealed until an executor pushes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Final

import msgspec

from tocsin.crypto.boxes import NONCE_BYTES, BoxKey, seal, unseal
from tocsin.errors import DecodeError
from tocsin.ntf_router.delivery.pushes import MOST_NOTIFICATIONS
from tocsin.ntf_router.store.records import LastNotification, PendingNotification, TokenRecord
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.pushes import parse_push_json
from tocsin.push.provider import PushRequest, Urgency


class RowKind(StrEnum):
    MESSAGE = "message"
    VERIFICATION = "verification"
    PERIODIC = "periodic"
    BEGIN = "begin"
    """The router begins anew: it has forgotten all rows of other epochs. It also asks whether the job works."""


class HandedRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row whose box is still sealed."""

    epoch: str
    """Distinguishes the rows of a router from those that it has forgotten."""
    id: int
    """Increases within an epoch."""
    kind: str
    provider: str = ""
    token: str = ""
    queue: str = ""
    notification: str = ""
    received_at: float = 0.0
    attempt: int = 0
    """Failed attempts of the token's push before this row was handed over."""
    box: bytes = b""


class OtherNotification(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A notification that may fill the remaining room of a push."""

    received_at: float
    nonce: bytes
    text: bytes


class HandedMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The sealed part of a notification."""

    device_token: bytes
    dh_secret: bytes
    registered_at: int
    seed: bytes
    """Random. The nonce of the push is made from it, so that a repeated push has the same bytes."""
    ttl: float
    nonce: bytes
    text: bytes
    others: tuple[OtherNotification, ...]
    """Other notifications of the token, oldest first. Only in the last of the rows handed over together."""

    def __repr__(self) -> str:
        """Omit the device token, keys and ids."""
        return f"HandedMessage({len(self.others)} others)"


class HandedRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The sealed part of a verification or periodic push."""

    device_token: bytes
    payload: bytes
    urgency: str
    push_id: str
    expires_at: int

    def __repr__(self) -> str:
        """Omit the device token and the payload."""
        return f"HandedRequest({self.push_id})"

    @property
    def request(self) -> PushRequest:
        """Raises ValueError for an urgency of another version, DecodeError for contents of one."""
        push = parse_push_json(self.payload)
        return PushRequest(self.device_token, push, Urgency(self.urgency), self.push_id, self.expires_at)


class RowWriter:
    """Makes the rows of one router, as lines."""

    def __init__(self, key: BoxKey) -> None:
        self._key = key

    def begin(self, epoch: str, number: int) -> bytes:
        return _line(HandedRow(epoch, number, RowKind.BEGIN))

    def message(
        self,
        epoch: str,
        number: int,
        token: TokenRecord,
        notification: PendingNotification,
        others: Sequence[LastNotification],
        attempt: int,
        ttl: float,
        randoms: tuple[bytes, bytes],
    ) -> bytes:
        """`randoms` are a seed for the push and a nonce for the box."""
        seed, box_nonce = randoms
        message = HandedMessage(
            token.device_token.token,
            token.dh_secret,
            token.registered_at,
            seed,
            ttl,
            notification.nonce,
            notification.text,
            tuple(
                [
                    OtherNotification(each.received_at, each.nonce, each.text)
                    for each in others[-MOST_NOTIFICATIONS:]
                ]
            ),
        )
        return _line(
            HandedRow(
                epoch,
                number,
                RowKind.MESSAGE,
                token.device_token.provider.text,
                self._hash(token.token_id),
                self._hash(queue_text(notification.text)),
                self._hash(notification.nonce),
                notification.received_at,
                attempt,
                box_nonce + seal(self._key, box_nonce, _PACKER.encode(message)),
            )
        )

    def control(
        self,
        epoch: str,
        number: int,
        kind: RowKind,
        provider: PushProvider,
        push: PushRequest,
        box_nonce: bytes,
    ) -> bytes:
        request = HandedRequest(
            push.device_token, push.payload, push.urgency.value, push.push_id, push.expires_at
        )
        return _line(
            HandedRow(
                epoch,
                number,
                kind,
                provider.text,
                self._hash(push.device_token),
                box=box_nonce + seal(self._key, box_nonce, _PACKER.encode(request)),
            )
        )

    def _hash(self, name: bytes) -> str:
        return hashlib.blake2b(name, digest_size=8, key=self._key).hexdigest()


def queue_text(text: bytes) -> bytes:
    """Return the part of a notification's text that names its queue."""
    return text.partition(b" ")[0]


def read_row(line: bytes) -> HandedRow:
    """Raises DecodeError."""
    try:
        return _LINES.decode(line)
    except msgspec.MsgspecError as error:
        raise DecodeError("not a row of a hand-over") from error


def read_rows(text: bytes) -> list[HandedRow]:
    """Read the rows of a segment. One that was torn by a crash of the machine is left out."""
    try:
        return _LINES.decode_lines(text)
    except msgspec.MsgspecError:
        rows = []
        for line in text.splitlines():
            with suppress(DecodeError):
                rows.append(read_row(line))
        return rows


def opened_message(row: HandedRow, key: BoxKey) -> HandedMessage:
    """Raises BadBox if the key is not the router's, DecodeError for another version."""
    try:
        return _MESSAGES.decode(_unsealed(row, key))
    except msgspec.MsgspecError as error:
        raise _another_version() from error


def opened_request(row: HandedRow, key: BoxKey) -> PushRequest:
    """Raises BadBox if the key is not the router's, DecodeError for another version."""
    try:
        return _REQUESTS.decode(_unsealed(row, key)).request
    except ValueError as error:  # also what msgspec raises
        raise _another_version() from error


def _unsealed(row: HandedRow, key: BoxKey) -> bytes:
    return unseal(key, row.box[:NONCE_BYTES], row.box[NONCE_BYTES:])


def _another_version() -> DecodeError:
    return DecodeError("the hand-over was written by another version of Tocsin")


def _line(row: HandedRow) -> bytes:
    return _JSON.encode(row) + b"\n"


_PACKER: Final = msgspec.msgpack.Encoder()
_MESSAGES: Final = msgspec.msgpack.Decoder(HandedMessage)
_REQUESTS: Final = msgspec.msgpack.Decoder(HandedRequest)
_LINES: Final = msgspec.json.Decoder(HandedRow)
_JSON: Final = msgspec.json.Encoder()
