"""Lines of an NTF router's changes log and state file. Both are ours, and hold what the reference does not keep.

The first half is about direct notifications.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeAlias

from tocsin.durable.log_fields import (
    FIELD,
    NUMBER,
    BadLogLine,
    LineOfWords,
    WordForm,
    decode_field,
    decode_field_or_empty,
    decode_number,
    encode_field,
    exactly,
    not_known,
)
from tocsin.ntf_router.store.logs.store_log import ROUTER, decode_flag
from tocsin.ntf_router.store.memory.subscription_table import ID_BYTES
from tocsin.protocol.addresses import RouterLocation


def _joined(notifier_ids: tuple[bytes, ...]) -> bytes:
    return encode_field(b"".join(notifier_ids))


def _split(text: bytes) -> tuple[bytes, ...]:
    joined = decode_field(text)
    if len(joined) % ID_BYTES:
        raise BadLogLine(f"ids of direct notifications must have {ID_BYTES} bytes each")
    return tuple(joined[start : start + ID_BYTES] for start in range(0, len(joined), ID_BYTES))


NOTIFIER_IDS: Final = WordForm(_joined, _split)


@dataclass(frozen=True, slots=True)
class QueuesAssociated(LineOfWords):
    tag: ClassVar[bytes] = b"A"
    forms = FIELD, ROUTER, NOTIFIER_IDS

    token_id: bytes = field(repr=False)
    router: RouterLocation
    notifier_ids: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _AtTime(LineOfWords):
    """The common form of D and G lines."""

    tag: ClassVar[bytes]
    forms = NOTIFIER_IDS, NUMBER

    notifier_ids: tuple[bytes, ...] = field(repr=False)
    time: int


@dataclass(frozen=True, slots=True)
class QueuesEnded(_AtTime):
    """The ids are marks (`end_mark`), which keep packets of that time from bringing a queue back."""

    tag: ClassVar[bytes] = b"D"


@dataclass(frozen=True, slots=True)
class QueuesGone(_AtTime):
    tag: ClassVar[bytes] = b"G"


@dataclass(frozen=True, slots=True)
class QueuesRemoved(LineOfWords):
    tag: ClassVar[bytes] = b"X"
    forms = (NOTIFIER_IDS,)

    notifier_ids: tuple[bytes, ...] = field(repr=False)


DirectChange: TypeAlias = QueuesAssociated | QueuesEnded | QueuesGone | QueuesRemoved
DIRECT_LINES: Final[dict[bytes, type[DirectChange]]] = {
    kind.tag: kind for kind in (QueuesAssociated, QueuesEnded, QueuesGone, QueuesRemoved)
}


@dataclass(frozen=True, slots=True)
class NotificationCame:
    subscription_id: bytes
    received_at: float
    nonce: bytes
    sealed_meta: bytes


@dataclass(frozen=True, slots=True)
class NotificationEnded:
    subscription_id: bytes
    outcome: str


@dataclass(frozen=True, slots=True)
class TokenRegisteredAt:
    token_id: bytes
    at: int


@dataclass(frozen=True, slots=True)
class CronSentAt:
    token_id: bytes
    at: int


@dataclass(frozen=True, slots=True)
class StateBegins:
    next_part: int


@dataclass(frozen=True, slots=True)
class Totals:
    received: int
    accepted: int
    superseded: int


@dataclass(frozen=True, slots=True)
class FailedCount:
    outcome: str
    count: int


@dataclass(frozen=True, slots=True)
class NotificationKept:
    subscription_id: bytes
    received_at: float
    pending: bool
    nonce: bytes
    sealed_meta: bytes


AnywhereLine: TypeAlias = TokenRegisteredAt | CronSentAt | DirectChange
ChangeLine: TypeAlias = NotificationCame | NotificationEnded | AnywhereLine
StateLine: TypeAlias = StateBegins | Totals | FailedCount | NotificationKept | AnywhereLine

_VERSION: Final = b"v1"


def came_line(subscription_id: bytes, received_at: float, nonce: bytes, sealed_meta: bytes) -> bytes:
    return b"N %b %b %b %b" % (
        encode_field(subscription_id),
        repr(received_at).encode(),
        encode_field(nonce),
        encode_field(sealed_meta),
    )


def ended_line(subscription_id: bytes, outcome: str) -> bytes:
    return b"S %b %b" % (encode_field(subscription_id), _word(outcome))


def registered_line(token_id: bytes, at: int) -> bytes:
    return b"R %b %d" % (encode_field(token_id), at)


def cron_sent_line(token_id: bytes, at: int) -> bytes:
    return b"C %b %d" % (encode_field(token_id), at)


def state_line(next_part: int) -> bytes:
    return b"STATE %b %d" % (_VERSION, next_part)


def totals_line(received: int, accepted: int, superseded: int) -> bytes:
    return b"TOTALS %d %d %d" % (received, accepted, superseded)


def failed_line(outcome: str, count: int) -> bytes:
    return b"FAILED %b %d" % (_word(outcome), count)


def kept_line(
    subscription_id: bytes, received_at: float, nonce: bytes, sealed_meta: bytes, *, pending: bool
) -> bytes:
    return b"LAST %b %b %b %b %b" % (
        encode_field(subscription_id),
        repr(received_at).encode(),
        b"T" if pending else b"F",
        encode_field(nonce),
        encode_field(sealed_meta),
    )


def decode_ntf_change_line(line: bytes) -> ChangeLine:
    """Raises `BadLogLine`."""
    tag, *words = line.split(b" ")
    if tag == b"N":
        subscription_id, time, nonce, meta = exactly(words, 4)
        return NotificationCame(
            decode_field(subscription_id), _time(time), decode_field(nonce), decode_field_or_empty(meta)
        )
    if tag == b"S":
        subscription_id, outcome = exactly(words, 2)
        return NotificationEnded(decode_field(subscription_id), _outcome(outcome))
    return _decode_anywhere_line(tag, words)


def decode_state_line(line: bytes) -> StateLine:
    """Raises `BadLogLine`."""
    tag, *words = line.split(b" ")
    if tag == b"LAST":
        subscription_id, time, pending, nonce, meta = exactly(words, 5)
        return NotificationKept(
            decode_field(subscription_id),
            _time(time),
            decode_flag(pending),
            decode_field(nonce),
            decode_field_or_empty(meta),
        )
    if tag == b"STATE":
        version, part = exactly(words, 2)
        if version != _VERSION:
            raise not_known("a state of another version")
        return StateBegins(decode_number(part))
    if tag == b"TOTALS":
        return Totals(*map(decode_number, exactly(words, 3)))
    if tag == b"FAILED":
        outcome, count = exactly(words, 2)
        return FailedCount(_outcome(outcome), decode_number(count))
    return _decode_anywhere_line(tag, words)


def _decode_anywhere_line(tag: bytes, words: list[bytes]) -> AnywhereLine:
    direct = DIRECT_LINES.get(tag)
    if direct is not None:
        return direct.decode(words)
    if tag not in (b"R", b"C"):
        raise not_known("unknown kind of record")
    token_id, at = exactly(words, 2)
    kind = TokenRegisteredAt if tag == b"R" else CronSentAt
    return kind(decode_field(token_id), decode_number(at))


def _word(outcome: str) -> bytes:
    return outcome.replace(" ", "_").encode("ascii", "replace")


def _time(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadLogLine("not a time") from None


def _outcome(text: bytes) -> str:
    try:
        return text.decode("ascii")
    except UnicodeDecodeError:
        raise BadLogLine("an outcome that is not ASCII") from None
