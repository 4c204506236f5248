"""Bodies of messages to Firebase, and their sizes."""

from __future__ import annotations

import json

import pytest

from tests.unit.ntf_router.store.samples import queue, token
from tests.unit.push.fcm.stage import MESSAGE, REGISTRATION, VERIFICATION
from tocsin.errors import DecodeError
from tocsin.ntf_router.delivery.pushes import choose_notifications, code_request, message_request
from tocsin.ntf_router.store.records import PendingNotification
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import (
    PADDED_FCM_PUSH_BYTES,
    CheckMessagesPush,
    Push,
    parse_push_json,
    push_json,
)
from tocsin.push.fake.fcm_checks import DATA_LIMIT, wrong_field
from tocsin.push.fcm.request import LONGEST_TTL_SECONDS, fcm_body, push_data, send_path
from tocsin.push.provider import PushRequest, Urgency
from tocsin.wire.padding import LENGTH_BYTES

TOKEN = token("a", DeviceToken(PushProvider.FCM, REGISTRATION))
LONGEST_LIST = PADDED_FCM_PUSH_BYTES - LENGTH_BYTES


def size(body: bytes) -> int:
    data = json.loads(body)["message"]["data"]
    return sum(len(name) + len(value) for name, value in data.items())


def notification(number: int, length: int) -> PendingNotification:
    return PendingNotification(
        float(number), bytes([number]) * 24, b"t" * length, b"subscription", queue("q")
    )


def test_the_body_of_a_message_byte_by_byte() -> None:
    request = PushRequest(
        b"token-token-token-token", push_json(CheckMessagesPush()), Urgency.BACKGROUND, "1", 107
    )
    assert fcm_body(request, 100.5) == (
        b'{"message":{"token":"token-token-token-token","data":{"checkMessages":"true"},"android":'
        b'{"priority":"NORMAL","ttl":"6s","direct_boot_ok":true,"collapse_key":"checkMessages"}}}'
    )
    assert send_path("my-project") == b"/v1/projects/my-project/messages:send"


@pytest.mark.parametrize("push", [MESSAGE, VERIFICATION, CheckMessagesPush()])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_push_has_the_body_that_a_json_encoder_makes(push: Push, as_json: bool) -> None:
    """The body of a message is put together from texts. A payload for Apple gives the same body."""
    token, contents = b'to"ken\\', push_json(push) if as_json else push
    body = fcm_body(PushRequest(token, contents, Urgency.ALERT, "1", 107), 100.0)
    android: dict[str, object] = {"priority": "HIGH", "ttl": "7s", "direct_boot_ok": True}
    if isinstance(push, CheckMessagesPush):
        android |= {"priority": "NORMAL", "collapse_key": "checkMessages"}
    said = {"message": {"token": token.decode(), "data": push_data(push), "android": android}}
    assert body == json.dumps(said, separators=(",", ":")).encode()


@pytest.mark.parametrize(("expires_at", "ttl"), [(50, 0), (100, 0), (10**12, LONGEST_TTL_SECONDS)])
def test_ttl_is_what_firebase_takes(expires_at: int, ttl: int) -> None:
    body = fcm_body(PushRequest(REGISTRATION, push_json(MESSAGE), Urgency.ALERT, "1", expires_at), 100.0)
    assert json.loads(body)["message"]["android"]["ttl"] == f"{ttl}s"
    assert wrong_field(body) is None


def test_all_pushes_with_contents_fit_and_have_one_size() -> None:
    code = fcm_body(code_request(TOKEN, b"n" * 24, 100), 0.0)
    sizes = set()
    for length in (1, 400, LONGEST_LIST):
        push = choose_notifications(TOKEN, [notification(1, length)])
        assert push is not None
        body = fcm_body(message_request(push, b"n" * 24, 60.0), 0.0)
        assert wrong_field(body) is None
        sizes.add(size(body))
    assert sizes == {4068}
    assert size(code) == 4073 <= DATA_LIMIT


def test_a_list_that_apple_takes_and_firebase_does_not_is_cut() -> None:
    """The newest one waits for the next push, as always."""
    last = [notification(number, 1020) for number in (1, 2, 3)]
    push = choose_notifications(TOKEN, last)
    assert push is not None
    assert (len(push.pending), push.more) == (2, True)
    apple = choose_notifications(token("a"), last)
    assert apple is not None
    assert not apple.more
    too_long = choose_notifications(TOKEN, [notification(1, LONGEST_LIST + 1)])
    assert too_long is not None
    assert too_long.chosen == []


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"aps":{}}',
        b'{"notificationData":{}}',
        b'{"notificationData":{"message":"bQ"}}',
        b'{"notificationData":{"message":1,"nonce":"bg"}}',
        b'{"notificationData":{"message":"bQ","nonce":null}}',
        b'{"notificationData":{"checkMessages":false}}',
    ],
)
def test_what_is_no_push_is_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        fcm_body(PushRequest(REGISTRATION, payload, Urgency.ALERT, "1", 0), 0.0)


@pytest.mark.parametrize("push", [MESSAGE, VERIFICATION, CheckMessagesPush()])
def test_a_device_reads_the_data_of_a_message(push: Push) -> None:
    assert parse_push_json(json.dumps(push_data(push)).encode()) == push
