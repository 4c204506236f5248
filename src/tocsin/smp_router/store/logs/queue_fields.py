"""Parts that several kinds of store log lines have: the mode, link, notifier and status of a queue (smp.md 10.1)."""

from __future__ import annotations

from typing import Final

from tocsin.durable.log_fields import (
    BadLogLine,
    OptionalFields,
    decode_field,
    decode_field_or_empty,
    encode_field,
)
from tocsin.errors import DecodeError
from tocsin.protocol import error_codes
from tocsin.protocol.error_codes import NOTICE_VERSION, Blocked, encode_error
from tocsin.protocol.smp.queue_modes import LinkData, QueueMode
from tocsin.smp_router.store.records import NotifierRecord, QueueLink, QueueStatus

_MODES: Final = {mode.value: mode for mode in QueueMode}
_OLD_MODES: Final = {b"T": QueueMode.MESSAGING, b"F": QueueMode.CONTACT}
"""`sndSecure=`, written before queues had modes."""
_BLOCKED: Final = b"BLOCKED "


def decode_mode(rest: OptionalFields) -> QueueMode | None:
    if rest.skip(b"queue_mode="):
        mode = _MODES.get(rest.take())
    elif rest.skip(b"sndSecure="):
        mode = _OLD_MODES.get(rest.take())
    else:
        return None
    if mode is None:
        raise BadLogLine("an unknown queue mode")
    return mode


def encode_link_data(data: LinkData) -> bytes:
    return encode_field(data.fixed) + b" " + encode_field(data.user)


def decode_link(rest: OptionalFields) -> QueueLink | None:
    if not rest.skip(b"link_id="):
        return None
    link_id = decode_field(rest.take())
    if not rest.skip(b"queue_data="):
        raise BadLogLine("a link without data")
    fixed, user = rest.take(), rest.take()
    return QueueLink(link_id, LinkData(decode_field_or_empty(fixed), decode_field_or_empty(user)))


def encode_notifier(notifier: NotifierRecord) -> bytes:
    words = [encode_field(notifier.notifier_id), encode_field(notifier.key), encode_field(notifier.dh_secret)]
    if notifier.service_id is not None:
        words.append(b"nsrv=" + encode_field(notifier.service_id))
    return b" ".join(words)


def decode_notifier(rest: OptionalFields) -> NotifierRecord:
    return NotifierRecord(
        decode_field(rest.take()),
        decode_field(rest.take()),
        decode_field(rest.take()),
        decode_field(rest.take()) if rest.skip(b"nsrv=") else None,
    )


def encode_status(status: QueueStatus | Blocked) -> bytes:
    return b"blocked," + encode_block_info(status) if isinstance(status, Blocked) else status.value.encode()


def decode_status(text: bytes) -> QueueStatus | Blocked:
    if text.startswith(b"blocked,"):
        return decode_block_info(text.removeprefix(b"blocked,"))
    for status in QueueStatus:
        if text == status.value.encode():
            return status
    raise BadLogLine("an unknown status")


def encode_block_info(blocked: Blocked) -> bytes:
    return encode_error(blocked, NOTICE_VERSION).removeprefix(_BLOCKED)


def decode_block_info(text: bytes) -> Blocked:
    """blockInfo of smp.md 6.5"""
    try:
        return error_codes.decode_block_info(text.decode())
    except (DecodeError, UnicodeDecodeError) as error:
        raise BadLogLine("a reason for blocking that is none") from error
