"""The text of an SMP router's error in a subscription's status, as the reference words it (ntf.md 4.5).

The reference shows its own values: `show` of `ErrorType`, `BlockingInfo` and `ClientNotice` in Messaging/Protocol.hs.
"""

from __future__ import annotations

from typing import Final

from tocsin.protocol.error_codes import (
    NOTICE_VERSION,
    Blocked,
    BlockNotice,
    BlockReason,
    CommandFault,
    ProxyFault,
    RouterError,
    StoreFault,
    encode_error,
)

MAX_TEXT: Final = 250
"""Of a status: it must fit the block of SCHK's answer, which has 512 bytes, whatever an SMP router says."""

_REASONS: Final = {BlockReason.SPAM: "BRSpam", BlockReason.CONTENT: "BRContent"}
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def smp_error_text(error: RouterError) -> str:
    match error:
        case CommandFault():
            text = f"CMD {{cmdErr = {error.value}}}"
        case Blocked(reason, notice):
            info = f"BlockingInfo {{reason = {_REASONS[reason]}, notice = {_notice_text(notice)}}}"
            text = f"BLOCKED {{blockInfo = {info}}}"
        case StoreFault(detail):
            text = f'STORE {{storeErr = "{_escaped(detail[:MAX_TEXT])}"}}'
        case ProxyFault():
            text = f"PROXY {{proxyErr = {error.value}}}"
        case _:
            text = _escaped(encode_error(error, NOTICE_VERSION).decode(errors="replace"))
    return text[:MAX_TEXT]


def _notice_text(notice: BlockNotice | None) -> str:
    if notice is None:
        return "Nothing"
    ttl = "Nothing" if notice.ttl is None else f"Just {notice.ttl}"
    return f"Just (ClientNotice {{ttl = {ttl}}})"


def _escaped(text: str) -> str:
    """Printable ASCII: neither a log's line nor a database's text can be broken by it."""
    return "".join(_ESCAPES.get(sign) or (sign if " " <= sign <= "~" else f"\\{ord(sign)}") for sign in text)
