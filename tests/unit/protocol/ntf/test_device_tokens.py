from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from tests.strategies import device_tokens, fcm_device_tokens, hex_device_tokens, web_push_device_tokens
from tocsin.errors import DecodeError
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter


@given(device_tokens)
def test_tokens_are_read_back(token: DeviceToken) -> None:
    out = WireWriter()
    token.encode(out)
    assert DeviceToken.decode(WireReader(out.done())) == token


@given(hex_device_tokens | web_push_device_tokens | fcm_device_tokens)
def test_the_text_of_a_token_is_read_back(token: DeviceToken) -> None:
    assert DeviceToken.parse(token.text()) == token


@pytest.mark.parametrize(
    ("provider", "wire", "text"),
    [
        (PushProvider.APNS_DEV, b"AD", "apns_dev"),
        (PushProvider.APNS_PROD, b"AP", "apns_prod"),
        (PushProvider.APNS_TEST, b"AT", "apns_test"),
        (PushProvider.APNS_NULL, b"AN", "apns_null"),
        (PushProvider.FCM, b"FC", "fcm"),
    ],
)
def test_providers_have_two_names(provider: PushProvider, wire: bytes, text: str) -> None:
    out = WireWriter()
    DeviceToken(provider, b"ab").encode(out)
    assert out.done() == wire + b"\x02ab"
    assert DeviceToken(provider, b"ab").text() == f"{text} ab"


def test_tokens_of_web_push_have_a_long_length() -> None:
    token = DeviceToken(PushProvider.WEBPUSH, b"x" * 300)
    out = WireWriter()
    token.encode(out)
    assert out.done() == b"WP\x01\x2c" + b"x" * 300
    assert token.text() == f"webpush {'x' * 300}"


@pytest.mark.parametrize(
    "data", [b"", b"A", b"XX\x02ab", b"ad\x02ab", b"AD", b"AD\x05ab", b"WP", b"WP\x02ab", b"WP\x00\x03ab"]
)
def test_malformed_tokens_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        DeviceToken.decode(WireReader(data))


def test_the_null_provider_has_one_token_that_is_not_hex() -> None:
    assert DeviceToken.parse("apns_null test_ntf_token") == DeviceToken(
        PushProvider.APNS_NULL, b"test_ntf_token"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "apns_dev",
        "apns_dev ",
        "other ab",
        "APNS_DEV ab",
        "apns_dev \u20ac",
        "apns_dev abc",
        "apns_dev AB",
        "apns_dev ab\n",
        "apns_dev ../../x",
        "apns_dev test_ntf_token",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="device token"):
        DeviceToken.parse(text)


@pytest.mark.parametrize(
    "text", ["webpush", "webpush ", "webpush abcd", "webpush \u20ac", "webpush  https://a/"]
)
def test_texts_that_are_no_tokens_of_web_push_are_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="Web Push token"):
        DeviceToken.parse(text)


def test_the_vector_of_the_document() -> None:
    """docs/howto/firebase.md"""
    token = DeviceToken.parse("fcm cFMx8-vJQ9:APA91b_0123456789")
    token.encode(out := WireWriter())
    assert out.done().hex() == "46431c63464d78382d764a51393a4150413931625f30313233343536373839"
    text = (Path(__file__).parents[4] / "docs" / "howto" / "firebase.md").read_text()
    assert out.done().hex() in text
    assert token.text() in text


@pytest.mark.parametrize(
    "text", ["fcm", "fcm ", "fcm short", "fcm " + "x" * 256, "fcm " + "x" * 20 + "/", "fcm \u20ac"]
)
def test_texts_that_are_no_registrations_of_firebase_are_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="registration token of Firebase"):
        DeviceToken.parse(text)


def test_registrations_have_up_to_255_bytes() -> None:
    token = DeviceToken.parse("fcm " + "x" * 255)
    token.encode(out := WireWriter())
    assert out.done() == b"FC\xff" + b"x" * 255
