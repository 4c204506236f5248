"""A push as a Web Push service gets it."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.unit.push.webpush.stage import CHECK, MESSAGES, VERIFICATION
from tocsin.crypto.boxes import TAG_BYTES
from tocsin.crypto.web_push import MAX_BODY_BYTES, WebPushSecret
from tocsin.errors import DecodeError
from tocsin.protocol.ntf.pushes import PADDED_WEB_PUSH_BYTES, CheckMessagesPush, Push, push_json
from tocsin.protocol.ntf.web_push_contents import parse_web_push_content
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress, WebPushForm
from tocsin.push.provider import Urgency
from tocsin.push.webpush.request import (
    LONGEST_TTL_SECONDS,
    pushed_content,
    request_bytes,
    sealed_body,
)

SECRET = WebPushSecret(bytes(range(1, 49)))
ADDRESS = WebPushAddress(SECRET.receiver, "push.test", 8443, "/up/a?b=c")


def sized(push: Push, form: WebPushForm) -> Push:
    """The push with contents as long as those of the form."""
    if form is WebPushForm.COMPACT or isinstance(push, CheckMessagesPush):
        return push
    return replace(push, sealed=push.sealed[: TAG_BYTES + PADDED_WEB_PUSH_BYTES])


def body_of(push: Push, form: WebPushForm) -> bytes:
    content = pushed_content(push, form)
    assert pushed_content(push_json(push), form) == content
    return sealed_body(content, replace(ADDRESS, form=form), os.urandom(32), os.urandom(16))


@pytest.mark.parametrize("form", WebPushForm)
@pytest.mark.parametrize("push", [MESSAGES, VERIFICATION, CHECK], ids=lambda push: type(push).__name__)
def test_the_device_gets_what_the_json_carried(push: Push, form: WebPushForm) -> None:
    push = sized(push, form)
    assert parse_web_push_content(SECRET.open(body_of(push, form))) == push


@pytest.mark.parametrize("form", WebPushForm)
def test_bodies_of_all_kinds_have_one_size_that_every_service_takes(form: WebPushForm) -> None:
    """The sizes are those of docs/howto/unifiedpush.md."""
    [size] = {len(body_of(sized(push, form), form)) for push in (MESSAGES, VERIFICATION, CHECK)}
    assert size == {WebPushForm.REFERENCE: 4093, WebPushForm.COMPACT: 3216}[form] <= MAX_BODY_BYTES


def test_a_payload_that_is_no_push_is_refused() -> None:
    with pytest.raises(DecodeError):
        pushed_content(b'{"aps":{"alert":"a notice"}}', WebPushForm.COMPACT)


def test_the_request_has_the_headers_of_the_standards() -> None:
    head, _, body = request_bytes(ADDRESS, Urgency.ALERT, "vapid t=x, k=y", b"sealed", ttl=60.9).partition(
        b"\r\n\r\n"
    )
    assert body == b"sealed"
    assert head.decode().split("\r\n") == [
        "POST /up/a?b=c HTTP/1.1",
        "Host: push.test:8443",
        "User-Agent: tocsin",
        "Authorization: vapid t=x, k=y",
        "TTL: 60",
        "Urgency: high",
        "Content-Encoding: aes128gcm",
        "Content-Type: application/octet-stream",
        "Content-Length: 6",
    ]


@pytest.mark.parametrize(("ttl", "told"), [(-5.0, 0), (0.5, 0), (1e12, LONGEST_TTL_SECONDS)])
def test_the_time_to_live_is_one_that_services_take(ttl: float, told: int) -> None:
    assert f"\r\nTTL: {told}\r\n".encode() in request_bytes(ADDRESS, Urgency.ALERT, "", b"", ttl=ttl)


def test_a_push_in_the_background_is_not_urgent() -> None:
    assert b"\r\nUrgency: normal\r\n" in request_bytes(ADDRESS, Urgency.BACKGROUND, "", b"", ttl=0)
