"""Contents of an opened Web Push body, in the two forms of registration. Either fits 4,096 bytes.

compact   = %s"V" nonce sealedCode / %s"M" nonce sealedList / %s"C"
reference = the JSON of ntf-webpush.md 7.1, with shorter sealed contents

All bodies of a form have one size.
"""

from __future__ import annotations

from typing import Final, assert_never

from tocsin.crypto.boxes import NONCE_BYTES, TAG_BYTES
from tocsin.errors import DecodeError
from tocsin.protocol.ntf.pushes import (
    PADDED_PUSH_BYTES,
    PADDED_WEB_PUSH_BYTES,
    CheckMessagesPush,
    MessagePush,
    Push,
    VerificationPush,
    parse_push_json,
    plain_push_json,
)
from tocsin.protocol.ntf.web_push_tokens import WebPushForm

_VERIFICATION: Final = b"V"
_MESSAGE: Final = b"M"
_CHECK_MESSAGES: Final = b"C"
_SEALED_KINDS: Final[dict[bytes, type[VerificationPush] | type[MessagePush]]] = {
    _VERIFICATION: VerificationPush,
    _MESSAGE: MessagePush,
}

MAX_CONTENT_BYTES: Final = 1 + NONCE_BYTES + TAG_BYTES + PADDED_PUSH_BYTES
PADDED_CONTENT_BYTES: Final = MAX_CONTENT_BYTES + 1
"""The padded size of compact contents of every kind, with the delimiter, so that all bodies have one size."""
PADDED_JSON_BYTES: Final = 1 + len(
    plain_push_json(VerificationPush(bytes(NONCE_BYTES), bytes(TAG_BYTES + PADDED_WEB_PUSH_BYTES)))
)
"""The same for the reference's form: the longest kind is a verification."""


def padded_content_bytes(form: WebPushForm) -> int:
    return PADDED_JSON_BYTES if form is WebPushForm.REFERENCE else PADDED_CONTENT_BYTES


def web_push_content(push: Push, form: WebPushForm = WebPushForm.COMPACT) -> bytes:
    if form is WebPushForm.REFERENCE:
        return plain_push_json(push)
    match push:
        case VerificationPush(nonce, sealed):
            return _VERIFICATION + nonce + sealed
        case MessagePush(nonce, sealed):
            return _MESSAGE + nonce + sealed
        case CheckMessagesPush():
            return _CHECK_MESSAGES
        case _:
            assert_never(push)


def parse_web_push_content(content: bytes) -> Push:
    """Decode a content of either form on the device. Raises `DecodeError`."""
    if content.startswith(b"{"):
        return parse_push_json(content)
    if content == _CHECK_MESSAGES:
        return CheckMessagesPush()
    kind = _SEALED_KINDS.get(content[:1])
    if kind is None:
        raise DecodeError("a Web Push of an unknown kind: V, M or C is expected")
    if not 1 + NONCE_BYTES + TAG_BYTES <= len(content) <= MAX_CONTENT_BYTES:
        raise DecodeError(f"a Web Push with a content of {len(content)} bytes")
    return kind(content[1 : 1 + NONCE_BYTES], content[1 + NONCE_BYTES :])
