"""Web Push with the examples of its RFCs, and with bodies that are none."""

from __future__ import annotations

import base64

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.crypto.test_signed_tokens import verify
from tocsin.crypto.web_push import (
    MAX_BODY_BYTES,
    MAX_PADDED_BYTES,
    VapidKey,
    WebPushReceiver,
    WebPushSecret,
    seal_web_push,
)
from tocsin.errors import BadBox, BadKey, LocalProtocolError


def unbase64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


# RFC 8291, section 5 and appendix A
CONTENT = b"When I grow up, I want to be a watermelon"
SENDER_KEY = unbase64("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw")
DEVICE_KEY = unbase64("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94")
PUBLIC_KEY = unbase64(
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
)
AUTH = unbase64("BTBZMqHH6r4Tts7J_aSIgg")
SALT = unbase64("DGv6ra1nlYgDCS1FRnbzlw")
BODY = unbase64(
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_"
    "yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
)
# RFC 8292, section 2.4
AUTHORIZATION = (
    "vapid t=eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJodHRwczovL3B1c2guZXhhbXBsZS5uZXQiLCJleHAiOjE0NTM1MjM3NjgsI"
    "nN1YiI6Im1haWx0bzpwdXNoQGV4YW1wbGUuY29tIn0.i3CYb7t4xfxCDquptFOepC9GAu_HLGkMlMuCGSK2rpiUfnK9ojFwDXb1JrErtmysazNjjvW2L"
    "9OkSSHzvoD1oA, k=BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs"
)

SECRET = WebPushSecret(DEVICE_KEY + AUTH)
RECORD_SIZE = slice(16, 20)
KEY_LENGTH = 20
KEY = slice(21, 86)

scalars = st.binary(min_size=32, max_size=32).filter(any)


def record_of(padded: bytes, to: WebPushReceiver = SECRET.receiver) -> bytes:
    """A body around any bytes, made without the code under test."""
    key = ec.derive_private_key(int.from_bytes(SENDER_KEY, "big"), ec.SECP256R1())
    device = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), to.public_key)
    agreed = key.exchange(ec.ECDH(), device)

    def derived(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
        return HKDF(hashes.SHA256(), length, salt, info).derive(secret)

    secret = derived(agreed, to.auth, b"WebPush: info\0" + to.public_key + BODY[KEY], 32)
    cipher = AESGCM(derived(secret, SALT, b"Content-Encoding: aes128gcm\0", 16))
    nonce = derived(secret, SALT, b"Content-Encoding: nonce\0", 12)
    return BODY[: KEY.stop] + cipher.encrypt(nonce, padded, None)


def altered(part: slice, data: bytes) -> bytes:
    return BODY[: part.start] + data + BODY[part.stop :]


# The examples


def test_the_example_of_the_rfc_is_sealed_and_opened() -> None:
    assert SECRET.receiver == WebPushReceiver(PUBLIC_KEY, AUTH)
    assert seal_web_push(CONTENT, SECRET.receiver, SENDER_KEY, SALT, padded_to=len(CONTENT) + 1) == BODY
    assert record_of(CONTENT + b"\x02") == BODY
    assert SECRET.open(BODY) == CONTENT


def test_the_example_of_an_authorization_verifies_and_ours_is_like_it() -> None:
    claims = {"aud": "https://push.example.net", "exp": 1453523768, "sub": "mailto:push@example.com"}
    key = VapidKey.from_scalar(SENDER_KEY)
    ours = key.authorization("https://push.example.net", "mailto:push@example.com", 1453523768)
    for authorization in (AUTHORIZATION, ours):
        assert authorization.startswith("vapid t=")
        token, point = authorization.removeprefix("vapid t=").replace(", k=", ",k=").split(",k=")
        public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), unbase64(point))
        assert verify(token.encode(), public) == claims
    assert ours.split(".")[:2] == AUTHORIZATION.split(".")[:2], "header and claims byte for byte"
    assert unbase64(ours.partition(",k=")[2]) == key.public


# Contents


@given(
    st.binary(max_size=300), scalars, st.binary(min_size=48, max_size=48).filter(lambda raw: any(raw[:32]))
)
def test_what_was_sealed_is_opened_whatever_its_padding(content: bytes, ephemeral: bytes, raw: bytes) -> None:
    secret = WebPushSecret(raw)
    for padded_to in (len(content) + 1, 400, MAX_PADDED_BYTES):
        body = seal_web_push(content, secret.receiver, ephemeral, SALT, padded_to=padded_to)
        assert len(body) == 86 + padded_to + 16
        assert secret.open(body) == content


def test_the_largest_body_is_what_every_service_takes() -> None:
    content = b"x" * (MAX_PADDED_BYTES - 1)
    body = seal_web_push(content, SECRET.receiver, SENDER_KEY, SALT, padded_to=MAX_PADDED_BYTES)
    assert len(body) == MAX_BODY_BYTES == 4096
    assert SECRET.open(body) == content


@pytest.mark.parametrize(
    ("length", "padded_to"), [(10, 10), (10, 0), (1, MAX_PADDED_BYTES + 1), (4000, 4001)]
)
def test_content_that_does_not_fit_is_not_sealed(length: int, padded_to: int) -> None:
    with pytest.raises(LocalProtocolError, match="do not fit"):
        seal_web_push(b"x" * length, SECRET.receiver, SENDER_KEY, SALT, padded_to=padded_to)


def test_salt_and_ephemeral_key_must_be_whole() -> None:
    with pytest.raises(LocalProtocolError, match="salt of 15 bytes"):
        seal_web_push(b"x", SECRET.receiver, SENDER_KEY, SALT[1:], padded_to=2)
    for key in (b"", SENDER_KEY[1:], bytes(32)):
        with pytest.raises(BadKey):
            seal_web_push(b"x", SECRET.receiver, key, SALT, padded_to=2)


# Hostile bodies


def test_body_that_is_cut_or_too_long_is_refused() -> None:
    for length in range(len(BODY)):
        with pytest.raises(BadBox):
            SECRET.open(BODY[:length])
    for longer in (BODY + b"\0", BODY + bytes(5000), bytes(MAX_BODY_BYTES + 1)):
        with pytest.raises(BadBox):
            SECRET.open(longer)
    with pytest.raises(BadBox, match="of 4097 bytes"):
        SECRET.open(BODY.ljust(4097, b"\0"))


def test_any_change_is_noticed() -> None:
    """But for the record size, which says nothing about a body of one record."""
    for place in {*range(len(BODY))} - {*range(RECORD_SIZE.start, RECORD_SIZE.stop)}:
        with pytest.raises(BadBox):
            SECRET.open(altered(slice(place, place + 1), bytes((BODY[place] ^ 1,))))


def test_body_for_somebody_else_is_refused() -> None:
    for raw in (SENDER_KEY + AUTH, DEVICE_KEY + bytes(16)):
        with pytest.raises(BadBox, match="does not open"):
            WebPushSecret(raw).open(BODY)


@pytest.mark.parametrize("size", [0, 17, len(BODY) - 86 - 1])
def test_record_size_that_makes_no_record_of_it_is_refused(size: int) -> None:
    with pytest.raises(BadBox, match="not one record"):
        SECRET.open(altered(RECORD_SIZE, size.to_bytes(4, "big")))


@pytest.mark.parametrize("size", [len(BODY) - 86, 2**32 - 1])
def test_any_record_size_that_holds_the_body_is_taken(size: int) -> None:
    assert SECRET.open(altered(RECORD_SIZE, size.to_bytes(4, "big"))) == CONTENT


def test_sender_key_that_is_no_point_is_refused() -> None:
    with pytest.raises(BadBox, match="without a P-256 key"):
        SECRET.open(altered(slice(KEY_LENGTH, KEY_LENGTH + 1), b"\x40"))
    for point in (bytes(65), b"\x04" + bytes(64), b"\x06" + BODY[KEY][1:], b"\x02" + BODY[KEY][1:]):
        with pytest.raises(BadBox, match="no point"):
            SECRET.open(altered(KEY, point))


@pytest.mark.parametrize(
    "padded", [b"\0", bytes(40), b"content", b"content\x01", b"content\x01\0\0", b"\x02x"]
)
def test_body_without_the_end_of_its_content_is_refused(padded: bytes) -> None:
    with pytest.raises(BadBox, match="without its end"):
        SECRET.open(record_of(padded))


def test_content_may_be_empty_or_end_like_padding() -> None:
    for content in (b"", b"\0\0", b"\x02", b"x\x02\0"):
        assert SECRET.open(record_of(content + b"\x02\0\0")) == content


# Keys


@given(scalars)
def test_compressed_keys_are_the_same_keys(scalar: bytes) -> None:
    receiver = WebPushSecret(scalar + AUTH).receiver
    assert len(receiver.compressed) == 33
    assert WebPushReceiver.from_compressed(receiver.compressed, AUTH) == receiver


def test_keys_that_are_none_are_refused() -> None:
    compressed = SECRET.receiver.compressed
    for point in (b"", PUBLIC_KEY[1:], PUBLIC_KEY + b"\0", compressed, b"\x06" + PUBLIC_KEY[1:]):
        with pytest.raises(BadKey, match="of 65 bytes"):
            WebPushReceiver(point, AUTH)
    with pytest.raises(BadKey, match="not a point"):
        WebPushReceiver(PUBLIC_KEY[:-1] + b"\0", AUTH)
    with pytest.raises(BadKey, match="secret of 15 bytes"):
        WebPushReceiver(PUBLIC_KEY, AUTH[1:])
    with pytest.raises(BadKey, match="33 are expected"):
        WebPushReceiver.from_compressed(PUBLIC_KEY, AUTH)
    with pytest.raises(BadKey, match="not a point"):
        WebPushReceiver.from_compressed(b"\x02" + b"\xff" * 32, AUTH)
    with pytest.raises(BadKey, match="secret of 47 bytes"):
        WebPushSecret(DEVICE_KEY + AUTH[1:])
    with pytest.raises(BadKey, match="not all zero"):
        WebPushSecret(bytes(48))


def test_random_bytes_above_the_order_are_a_key_too() -> None:
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    above = WebPushSecret((order + 7).to_bytes(32, "big") + AUTH)
    assert above.receiver == WebPushSecret((7).to_bytes(32, "big") + AUTH).receiver


def test_secrets_do_not_show() -> None:
    shown = repr([SECRET, SECRET.receiver, VapidKey.from_scalar(SENDER_KEY)])
    for secret in (DEVICE_KEY, AUTH, SECRET.raw, SENDER_KEY):
        assert secret.hex() not in shown
        assert repr(secret)[2:-1] not in shown


def test_vapid_keys_are_written_and_read() -> None:
    key = VapidKey.from_scalar(SENDER_KEY)
    assert key.public == BODY[KEY]
    assert key.pem.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert VapidKey.from_pem(key.pem) == key
    assert VapidKey.from_scalar(DEVICE_KEY) != key
    with pytest.raises(BadKey, match="VAPID"):
        VapidKey.from_pem(b"nothing")


def test_authorization_of_another_key_does_not_verify() -> None:
    token = (
        VapidKey.from_scalar(SENDER_KEY).authorization("https://a", "mailto:b", 1).split()[1].split(",")[0]
    )
    other = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), PUBLIC_KEY)
    with pytest.raises(InvalidSignature):
        verify(token.removeprefix("t=").encode(), other)
