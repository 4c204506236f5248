"""Requests to Apple: the reference's headers, and what we add."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.push.stage import PUSH, Stage
from tocsin.protocol.ntf.pushes import MessagePush, parse_push_json
from tocsin.push.provider import Accepted, PushRequest, Urgency
from tools.wire_vectors.files import read_folder
from tools.wire_vectors.pushes import headers_sent

FOLDER = Path(__file__).parents[3] / "wire_vectors"
RECORDED = {vector.name: vector for vector in read_folder(FOLDER) if vector.name.startswith("push-")}


@pytest.mark.parametrize("name", RECORDED)
async def test_what_the_provider_gets_begins_as_the_reference_recorded_it(stage: Stage, name: str) -> None:
    """Over HTTP/2, as the provider sees it; only the authorization, which our client has not, is missing."""
    http = RECORDED[name].fields.object("http")
    body = http.text("body").encode()
    recorded = [(key.encode(), value.encode()) for key, value in http.items("headers")]
    fields = dict(recorded)
    push = parse_push_json(body)
    urgency = Urgency.ALERT if isinstance(push, MessagePush) else Urgency.BACKGROUND
    token = fields[b":path"].removeprefix(b"/3/device/")
    sent = PushRequest(token, push, urgency, PUSH.push_id, PUSH.expires_at)
    assert await stage.provider.send(sent) == Accepted()
    received = await stage.apns.next_push(token)
    assert received.payload == body
    assert received.headers == [
        *(each for each in recorded if each[0] != b"authorization"),
        (b"apns-id", PUSH.push_id.encode()),
        (b"apns-expiration", b"1800000000"),
    ]


def names_sent(authorization: bytes | None, *, secret_only: bool = False) -> list[bytes]:
    sent = headers_sent(PUSH, authority=b"a", topic=b"t", authorization=authorization)
    return [name for name, _, is_secret in sent if is_secret or not secret_only]


def test_the_authorization_stands_where_the_reference_has_it() -> None:
    assert names_sent(b"bearer x")[5:8] == [b"apns-push-type", b"authorization", b"apns-priority"]


def test_a_push_does_not_replace_an_earlier_one() -> None:
    assert b"apns-collapse-id" not in names_sent(None)


def test_what_differs_from_push_to_push_is_kept_out_of_the_compression_table() -> None:
    assert names_sent(b"bearer x", secret_only=True) == [b":path", b"apns-id", b"apns-expiration"]
