"""Our Web Push before programs that others wrote: `http_ece`, `pywebpush` and `py_vapid`."""

from __future__ import annotations

import os

import http_ece  # type: ignore[import-untyped]  # it has no types
import py_vapid  # type: ignore[import-untyped]  # it has no types
import pytest
import pywebpush  # type: ignore[import-untyped]  # it has no types
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.push.webpush.stage import CHECK, MESSAGES, VERIFICATION
from tests.unit.push.webpush.test_request import sized
from tocsin.crypto.signed_tokens import unpadded_base64url
from tocsin.crypto.web_push import (
    MAX_BODY_BYTES,
    MAX_PADDED_BYTES,
    VapidKey,
    WebPushSecret,
    seal_web_push,
)
from tocsin.errors import BadBox
from tocsin.protocol.ntf.pushes import Push, push_json
from tocsin.protocol.ntf.web_push_contents import parse_web_push_content, web_push_content
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress, WebPushForm
from tocsin.push.webpush.request import pushed_content, sealed_body

SECRET = WebPushSecret(bytes(range(1, 49)))
PRIVATE = ec.derive_private_key(int.from_bytes(SECRET.raw[:32], "big"), ec.SECP256R1())
UNIFIED_PUSH_BYTES = 4096
"""A distributor's limit for a message."""


def opened_by_another(body: bytes) -> bytes:
    content: bytes = http_ece.decrypt(
        body, private_key=PRIVATE, auth_secret=SECRET.receiver.auth, version="aes128gcm"
    )
    return content


@settings(max_examples=30, deadline=None)
@given(st.binary(min_size=1, max_size=MAX_PADDED_BYTES - 1), st.integers(0, MAX_PADDED_BYTES))
def test_others_open_what_we_seal(content: bytes, padding: int) -> None:
    padded_to = min(len(content) + 1 + padding, MAX_PADDED_BYTES)
    body = seal_web_push(content, SECRET.receiver, os.urandom(32), os.urandom(16), padded_to=padded_to)
    assert opened_by_another(body) == content


@settings(max_examples=30, deadline=None)
@given(st.binary(min_size=1, max_size=MAX_PADDED_BYTES - 1))
def test_we_open_what_others_seal(content: bytes) -> None:
    subscription = {
        "endpoint": "https://push.example.org/up",
        "keys": {
            "p256dh": unpadded_base64url(SECRET.receiver.public_key).decode(),
            "auth": unpadded_base64url(SECRET.receiver.auth).decode(),
        },
    }
    body = pywebpush.WebPusher(subscription).encode(content, content_encoding="aes128gcm")["body"]
    assert SECRET.open(body) == content


@pytest.mark.parametrize("form", WebPushForm)
@pytest.mark.parametrize("push", [MESSAGES, VERIFICATION, CHECK], ids=lambda push: type(push).__name__)
def test_a_library_on_the_device_opens_every_push(push: Push, form: WebPushForm) -> None:
    """One record of 4,096 bytes at most, as a UnifiedPush distributor and its library take it."""
    address = WebPushAddress(SECRET.receiver, "push.example.org", 443, "/up", form)
    push = sized(push, form)
    content = pushed_content(push_json(push), form)
    body = sealed_body(content, address, os.urandom(32), os.urandom(16))
    assert len(body) <= UNIFIED_PUSH_BYTES == MAX_BODY_BYTES == int.from_bytes(body[16:20], "big")
    assert opened_by_another(body) == content == web_push_content(push, form)
    assert parse_web_push_content(opened_by_another(body)) == push


def test_a_body_of_another_device_opens_for_nobody() -> None:
    other = WebPushSecret(bytes(range(2, 50)))
    body = seal_web_push(b"x", other.receiver, os.urandom(32), os.urandom(16), padded_to=100)
    with pytest.raises(http_ece.ECEException):
        opened_by_another(body)
    with pytest.raises(BadBox):
        SECRET.open(body)


@given(st.integers(1, 2**255), st.sampled_from(["https://push.example.org", "https://ntfy.example:8443"]))
@settings(max_examples=10, deadline=None)
def test_others_verify_our_header(scalar: int, audience: str) -> None:
    key = VapidKey.from_scalar(scalar.to_bytes(32, "big"))
    header = key.authorization(audience, "mailto:op@example.com", 1_700_000_000)
    assert py_vapid.Vapid02.verify(header)
    token = header.partition("t=")[2].partition(",")[0]
    other = VapidKey.from_scalar((scalar + 1).to_bytes(32, "big"))
    public = unpadded_base64url(other.public).decode()
    assert not py_vapid.Vapid02.verify(f"vapid t={token},k={public}")


def test_key_files_are_exchanged() -> None:
    """SEC 1 as `openssl ecparam` and the reference write it, and PKCS#8 as ours."""
    made = py_vapid.Vapid02()
    made.generate_keys()
    theirs = VapidKey.from_pem(made.private_pem())
    assert py_vapid.Vapid02.from_pem(theirs.pem).public_pem() == made.public_pem()
