"""A push as a request to a Web Push service (RFC 8030, RFC 8291): pure.

All bodies of a form have one size, so that a push service cannot distinguish kinds of pushes; it sees only their
urgency. There is no `Topic`: a later push would replace an earlier one that the service still keeps for an offline
device.
"""

from __future__ import annotations

from typing import Final

from tocsin.crypto.web_push import seal_web_push
from tocsin.protocol.ntf.pushes import Push, parse_push_json
from tocsin.protocol.ntf.web_push_contents import padded_content_bytes, web_push_content
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress, WebPushForm
from tocsin.push.provider import Urgency

LONGEST_TTL_SECONDS: Final = 28 * 86_400
"""The longest time for which the large services keep a push."""
_URGENCIES: Final = {Urgency.ALERT: "high", Urgency.BACKGROUND: "normal"}


def pushed_content(contents: Push | bytes, form: WebPushForm) -> bytes:
    """Return the content of a push. The JSON of one made for Apple would not fit. Raises DecodeError."""
    push = parse_push_json(contents) if isinstance(contents, bytes) else contents
    return web_push_content(push, form)


def sealed_body(content: bytes, address: WebPushAddress, ephemeral_key: bytes, salt: bytes) -> bytes:
    """Seal content to a body of fixed length. The key and the salt must be random and used only once."""
    padded_to = padded_content_bytes(address.form)
    return seal_web_push(content, address.receiver, ephemeral_key, salt, padded_to=padded_to)


def request_bytes(
    address: WebPushAddress, urgency: Urgency, authorization: str, body: bytes, *, ttl: float
) -> bytes:
    """Return the request. `ttl` is the seconds for which the service keeps the push for an offline device."""
    lines = (
        f"POST {address.path} HTTP/1.1",
        f"Host: {address.origin.removeprefix('https://')}",
        "User-Agent: tocsin",
        f"Authorization: {authorization}",
        f"TTL: {min(max(int(ttl), 0), LONGEST_TTL_SECONDS)}",
        f"Urgency: {_URGENCIES[urgency]}",
        "Content-Encoding: aes128gcm",
        "Content-Type: application/octet-stream",
        f"Content-Length: {len(body)}",
        "\r\n",
    )
    return "\r\n".join(lines).encode("ascii") + body
