"""The pushes of ntf.md, Appendix A."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.appendix_a import sha256
from tests.strategies import nonces, pushed_notifications
from tests.unit.protocol.ntf.appendix_a import CLIENT_DH, CODE, PUSH_NONCE, QUEUE, ROUTER_DH
from tocsin.crypto.boxes import box_key, seal
from tocsin.crypto.keys import X25519PrivateKey
from tocsin.errors import BadBox, DecodeError, LocalProtocolError
from tocsin.protocol.ntf.pushes import (
    PADDED_PUSH_BYTES,
    CheckMessagesPush,
    MessagePush,
    PushedNotification,
    VerificationPush,
    notification_list_text,
    parse_notification_list,
    parse_push_json,
    push_json,
    seal_code,
    seal_notifications,
    unseal_code,
    unseal_notifications,
)
from tocsin.protocol.smp.delivered_messages import NotificationMeta, seal_meta
from tocsin.wire.padding import LENGTH_BYTES, pad

KEY = box_key(CLIENT_DH.agree(ROUTER_DH.public))
QUEUE_SECRET = X25519PrivateKey(b"\x0e" * 32).agree(X25519PrivateKey(b"\x0f" * 32).public)
NMSG_NONCE = b"\x10" * 24
SEALED_META = seal_meta(box_key(QUEUE_SECRET), NMSG_NONCE, NotificationMeta(b"\x0d" * 24, 1700000000))
FIRST = PushedNotification(QUEUE, 1700000001, NMSG_NONCE, SEALED_META)
SECOND = PushedNotification(QUEUE, 1700000002, NMSG_NONCE, SEALED_META)


def test_secrets_are_those_of_the_appendix() -> None:
    assert KEY.hex() == "7eb1ed09d0591d454fb63f13cdd879c84cf0b977c1b7a74f8af3ae0623d90834"
    assert QUEUE_SECRET.hex() == "ac77ee3c061bd073a1c0ab0e02233aaaf2c215554f1344dde652d391315b4917"


def test_the_verification_push_is_that_of_the_appendix() -> None:
    push = seal_code(KEY, PUSH_NONCE, CODE)
    assert len(push.sealed) == 3088
    assert push.sealed[:32].hex() == "823673ca035a03117fb5047cf0ee398b76b9851dcfb28eacc061dbef2d4f1251"
    assert sha256(push.sealed) == "e536276ebb24eefa88346b31dc15d5638a91fa11a97347ca9d160d676e006532"
    payload = push_json(push)
    assert b'"gjZzygNaAxF_tQR88O45i3a5hR3Pso6s' in payload
    assert len(payload) == 4233
    assert sha256(payload) == "a1313d474ac4b5b816addad20c89226d9740bb61ac29ff4c8d1c10d7b064574f"
    assert parse_push_json(payload) == push
    assert unseal_code(KEY, push) == CODE


def test_metadata_and_item_are_those_of_the_appendix() -> None:
    assert SEALED_META.hex() == (
        "fd3969cf19de5d35c04042927a1d30a764b9fcf2bc5c8804411fddd9d410cdc8a383a6c18bfd5fc76bc3b977e79c3cbb1dad51c3"
        "490b9f73112d138aabec6eb16ab128058223dc18f5a847d21edb778dc94c2603f02c61768a662b96c83989b50c391f55ac0e19f7"
        "05581c67d2ca218e01222e2fb32a893d760e9dafab1ecb178aa0883f71d28ea7b87636636e4ac93c"
    )
    assert len(FIRST.text()) == 341
    assert FIRST.text().startswith(
        "smp://DAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAw=@smp.example.com:5223/"
        "CgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoK 1700000001 EBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQ "
    )


def test_the_message_push_is_that_of_the_appendix() -> None:
    assert len(notification_list_text([FIRST, SECOND])) == 683
    push = seal_notifications(KEY, PUSH_NONCE, [FIRST, SECOND])
    assert push.sealed[:32].hex() == "bdb11f5e83e1041bf06ae3fe1cbed3007432f274bb8ca5878024a8a66d0a6118"
    assert sha256(push.sealed) == "2e1b65b597410a2b366eebb8f21d5ed9b0099038a6bb4ef506b1259e5cc44499"
    payload = push_json(push)
    assert len(payload) == 4310
    assert sha256(payload) == "c61553d6474bc2931df85deb5f5dc1b3ea8ab0a264940c1317ba46aecbf837f4"
    assert parse_push_json(payload) == push
    assert unseal_notifications(KEY, push) == (FIRST, SECOND)


def test_the_periodic_push_carries_nothing() -> None:
    payload = b'{"aps":{"content-available":1},"notificationData":{"checkMessages":true}}'
    assert push_json(CheckMessagesPush()) == payload
    assert parse_push_json(payload) == CheckMessagesPush()


@given(st.lists(pushed_notifications, min_size=1, max_size=3))
def test_lists_are_read_back(notifications: list[PushedNotification]) -> None:
    assert parse_notification_list(notification_list_text(notifications)) == tuple(notifications)


@settings(max_examples=20)
@given(nonces, st.binary(max_size=64))
def test_codes_are_read_back(nonce: bytes, code: bytes) -> None:
    push = seal_code(KEY, nonce, code)
    assert parse_push_json(push_json(push)) == push
    assert unseal_code(KEY, push) == code


def test_a_list_longer_than_a_push_is_refused() -> None:
    long = PushedNotification(QUEUE, 1, NMSG_NONCE, bytes(PADDED_PUSH_BYTES - LENGTH_BYTES))
    with pytest.raises(LocalProtocolError):
        seal_notifications(KEY, PUSH_NONCE, [long])


def test_a_push_for_another_device_is_refused() -> None:
    with pytest.raises(BadBox):
        unseal_code(box_key(bytes(32)), seal_code(KEY, PUSH_NONCE, CODE))
    with pytest.raises(BadBox):
        unseal_notifications(box_key(bytes(32)), seal_notifications(KEY, PUSH_NONCE, [FIRST]))


@pytest.mark.parametrize("text", [b"\xff", b"", b"a b c d"])
def test_a_list_that_does_not_parse_is_refused(text: bytes) -> None:
    push = MessagePush(PUSH_NONCE, seal(KEY, PUSH_NONCE, pad(text, 3072)))
    with pytest.raises(DecodeError):
        unseal_notifications(KEY, push)


_QUEUE, _TIME, _NONCE, _META = FIRST.text().split(" ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        FIRST.text() + ";",
        FIRST.text() + " x",
        f"{_QUEUE} {_TIME} {_NONCE}",
        f"{_QUEUE} x {_NONCE} {_META}",
        f"{_QUEUE} -1 {_NONCE} {_META}",
        f"{_QUEUE} ٣ {_NONCE} {_META}",
        f"{_QUEUE} {'1' * 19} {_NONCE} {_META}",
        f"{_QUEUE} {_TIME} AAAA {_META}",
        f"{_QUEUE} {_TIME} % {_META}",
        f"{_QUEUE} {_TIME} {_NONCE} ",
        f"nowhere {_TIME} {_NONCE} {_META}",
    ],
)
def test_malformed_notifications_are_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        parse_notification_list(text)


NONCE_TEXT = "BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUF"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b"\xff",
        b"[" * 100_000,
        b"{}",
        b'{"notificationData":1}',
        b'{"notificationData":[]}',
        b'{"notificationData":{}}',
        b'{"notificationData":{"checkMessages":false}}',
        json.dumps({"notificationData": {"nonce": NONCE_TEXT}}).encode(),
        json.dumps({"notificationData": {"verification": "AAAA"}}).encode(),
        json.dumps({"notificationData": {"nonce": "AAAA", "message": "AAAA"}}).encode(),
        json.dumps({"notificationData": {"nonce": NONCE_TEXT, "message": "%"}}).encode(),
        json.dumps({"notificationData": {"nonce": 1, "message": "AAAA"}}).encode(),
    ],
)
def test_other_payloads_are_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_push_json(payload)


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_push_json(payload)


def test_unknown_members_are_ignored() -> None:
    data = {"notificationData": {"nonce": NONCE_TEXT, "message": "AAAA", "new": 1}, "aps": 1, "new": 2}
    assert parse_push_json(json.dumps(data).encode()) == MessagePush(PUSH_NONCE, bytes(3))


def test_ciphertext_is_not_shown() -> None:
    for push in (VerificationPush(PUSH_NONCE, b"ciphertext"), MessagePush(PUSH_NONCE, b"ciphertext")):
        assert "ciphertext" not in repr(push)
    assert "ciphertext" not in repr(PushedNotification(QUEUE, 1, NMSG_NONCE, b"ciphertext"))
