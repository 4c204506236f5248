"""Web Push in the form of the reference's unreleased branch: tokens, commands, contents (ntf-webpush.md 2, 7, 14)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.appendix_a import E, sha256
from tests.strategies import web_push_addresses
from tests.unit.protocol.ntf.appendix_a import CLIENT_DH, CODE, CORR, PUSH_NONCE, SESSION, TOKEN_ID, TOKEN_KEY
from tests.unit.protocol.ntf.test_pushes import FIRST, KEY, SECOND
from tests.unit.protocol.ntf.test_web_push_tokens import fits
from tocsin.crypto.boxes import seal
from tocsin.crypto.web_push import VapidKey, WebPushReceiver, seal_web_push
from tocsin.errors import DecodeError
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.pushes import (
    PADDED_PUSH_BYTES,
    PADDED_WEB_PUSH_BYTES,
    CheckMessagesPush,
    MessagePush,
    Push,
    notification_list_text,
    plain_push_json,
    seal_code,
)
from tocsin.protocol.ntf.token_commands import RegisterToken, ReplaceToken
from tocsin.protocol.ntf.web_push_contents import (
    PADDED_JSON_BYTES,
    parse_web_push_content,
    web_push_content,
)
from tocsin.protocol.ntf.web_push_tokens import (
    MAX_REFERENCE_ENDPOINT_BYTES,
    WebPushAddress,
    WebPushForm,
)
from tocsin.protocol.sessions import BlockCoder, ClientSession
from tocsin.wire.padding import pad
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

REFERENCE: Final = WebPushForm.REFERENCE
DEVICE_KEY: Final = VapidKey.from_scalar(b"\x21" * 32).public
RECEIVER: Final = WebPushReceiver(DEVICE_KEY, b"\x22" * 16)
ENDPOINT: Final = "https://push.example.org/up?t=1"
ADDRESS: Final = WebPushAddress.from_url(ENDPOINT, RECEIVER, REFERENCE)
TOKEN: Final = DeviceToken(PushProvider.WEBPUSH, ADDRESS.token())
TEXT: Final = (
    "webpush https://push.example.org/up?t=1 IiIiIiIiIiIiIiIiIiIiIg== "
    "BEYtuhrk_BqWi02s8gzdbb4frjSqlxUUpj00BcPRz9ODtYu7CMEzg0KMWFPHHEyFHhNLBWgh5Gj-Cpd6v0MT3eE="
)

reference_addresses: Final = web_push_addresses.filter(
    lambda each: ":" not in each.host and len(each.host) > 1
).map(lambda each: replace(each, form=REFERENCE))


def wire_of(token: DeviceToken) -> bytes:
    token.encode(out := WireWriter())
    return out.done()


def fields(
    host: bytes = b"push.example.org",
    port: bytes = b"",
    path: bytes = b"/up?t=1",
    auth: bytes = RECEIVER.auth,
    key: bytes = DEVICE_KEY,
) -> bytes:
    return b"WP" + b"".join(bytes((len(each),)) + each for each in (host, port, path, auth, key))


def decoded(wire: bytes) -> DeviceToken:
    reader = WireReader(wire)
    token = DeviceToken.decode(reader)
    reader.expect_end()
    return token


def test_the_token_is_that_of_the_vectors() -> None:
    assert DEVICE_KEY.hex().startswith("04462dba1ae4fc1a968b4dacf20cdd6d")
    wire = wire_of(TOKEN)
    assert wire == fields()
    assert len(wire) == 111
    assert sha256(wire) == "c14b8b054364939a2b47b4ef2fed770e2e5841cb678919a18f1e2f7eed4727eb"
    assert decoded(wire) == TOKEN
    assert TOKEN.text() == TEXT
    assert DeviceToken.parse(TEXT) == TOKEN
    other = decoded(fields(port=b"8443"))
    assert len(wire_of(other)) == 115
    assert sha256(wire_of(other)) == "ec9692ba23762dc7634f509c85442bd7dadf46f0e4d4c6f799803d31cd109db3"


def test_the_document_has_both_forms_of_that_token() -> None:
    """docs/howto/unifiedpush.md"""
    page = (Path(__file__).parents[4] / "docs" / "howto" / "unifiedpush.md").read_text("utf-8")
    ours = DeviceToken(PushProvider.WEBPUSH, replace(ADDRESS, form=WebPushForm.COMPACT).token())
    for token in (TOKEN, ours):
        assert f"```\n{token.text()}\n{wire_of(token).hex()}\n```" in page


def test_commands_are_those_of_the_vectors() -> None:
    command = RegisterToken(TOKEN, TOKEN_KEY.public, CLIENT_DH.public)
    body = command.encode(3)
    assert len(body) == 207
    assert sha256(body) == "a9ff9fc5d59d4a67962c211f2e32999402d20402d0d45d926eb261ed595d1ac3"
    session = ClientSession(NTF, 3, SESSION, BlockCoder(NTF.block_size), None)
    block = session.to_block([session.request(CORR, b"", command, TOKEN_KEY)])
    assert sha256(block) == "577b5900d55b36cc208b50c41416a2a8c4af57bbec37cc4f03aecba9c064d1eb"
    replacement = ReplaceToken(TOKEN).encode(3)
    assert len(replacement) == 116
    assert sha256(replacement) == "9ab90a40f351d2c1aa534f3d187373ba6c83670d43d6fd2a4896c1e0bbbba7d0"


def verification(padded_to: int) -> Push:
    return seal_code(KEY, PUSH_NONCE, CODE, padded_to)


def messages(padded_to: int) -> Push:
    text = notification_list_text([FIRST, SECOND]).encode()
    return MessagePush(PUSH_NONCE, seal(KEY, PUSH_NONCE, pad(text, padded_to)))


@pytest.mark.parametrize(
    ("push", "length", "json_hash", "body_hash"),
    [
        (
            verification(PADDED_PUSH_BYTES),
            4182,
            "20caea36dcc60f9107d3de36cff88ff51fc9caf0c0cea7541b4acf2f1fffff7c",
            None,  # the branch's body, which is longer than Web Push allows
        ),
        (
            messages(PADDED_PUSH_BYTES),
            4177,
            "bdd1f96d67ed2175ab7c18fcbdf937118a5838968bbe3ca132012aeeec705cb8",
            None,
        ),
        (
            verification(PADDED_WEB_PUSH_BYTES),
            3990,
            "4782d74dea38bc682668cd3391507a935d34f841354ff904cda47a8f288d4486",
            "b7e2e4376ef1cf856483e363c47ee3207025d368f31ed01befdfffc5eef6ea9a",
        ),
        (
            messages(PADDED_WEB_PUSH_BYTES),
            3985,
            "0a0af1d5f3cf11a300718bdfdfaa10c2fdbe5da125534a68caa59281c4b09c8a",
            "0702578dd0aa26f18363492be0e7ed4ff0ecdd3890ef1545790609e41263faf8",
        ),
        (
            CheckMessagesPush(),
            22,
            "50289bbbc85842a00f9a7058abc5fbbf3de0a8404020498511ebfe2cc03a6b90",
            "700cb78f26a8c7dab85d1076a47d3953bc1d6a716c638583f3e4d70eb1ceddbe",
        ),
    ],
)
def test_contents_and_bodies_are_those_of_the_vectors(
    push: Push, length: int, json_hash: str, body_hash: str | None
) -> None:
    content = plain_push_json(push)
    assert (len(content), sha256(content)) == (length, json_hash)
    assert parse_web_push_content(content) == push
    if body_hash is not None:
        assert web_push_content(push, REFERENCE) == content
        body = seal_web_push(content, RECEIVER, b"\x23" * 32, b"\x24" * 16, padded_to=len(content) + 1)
        assert sha256(body) == body_hash
        assert len(content) < PADDED_JSON_BYTES


@given(reference_addresses)
def test_addresses_are_read_back_from_every_form(address: WebPushAddress) -> None:
    token = DeviceToken(PushProvider.WEBPUSH, address.token())
    assert token.is_reference_web_push
    assert WebPushAddress.parse(token.token) == address
    assert decoded(wire_of(token)) == token
    assert DeviceToken.parse(token.text()) == token
    compact = replace(address, form=WebPushForm.COMPACT)
    assert compact.token() != token.token
    assert not DeviceToken(PushProvider.WEBPUSH, compact.token()).is_reference_web_push


def test_what_means_the_same_endpoint_is_the_same_token() -> None:
    for wire in (fields(host=b"Push.Example.ORG"), fields(port=b"443"), fields(port=b"00443")):
        assert decoded(wire) == TOKEN
    at_port = decoded(fields(port=b"8443"))
    assert decoded(fields(port=b"08443")) == at_port != TOKEN
    root = decoded(fields(path=b""))
    assert decoded(fields(path=b"/")) == root
    assert decoded(fields(path=b"?t=1")) == decoded(fields(path=b"/?t=1"))
    for text in (TEXT.replace("=", ""), TEXT.replace(".org/", ".org:443/")):
        if "?t=1" in text:
            assert DeviceToken.parse(text) == TOKEN
    assert DeviceToken.parse(TEXT.replace("Ig== ", "Ig ").removesuffix("=")) == TOKEN


OFF_THE_CURVE: Final = b"\x04" + b"\x01" * 64


@pytest.mark.parametrize(
    "wire",
    [
        fields(host=b""),
        fields(host=b"a"),
        fields(host=b"push example.org"),
        fields(host=b"user@push.example.org"),
        fields(host=b"push.example.org/up"),
        fields(host=b"push.example.org:80"),
        fields(host=b"[2001:db8::1]"),
        fields(host=b"2001:db8::1"),
        fields(host=b"https://push.example.org/up"),
        fields(host=b"127.1"),
        fields(host=b"\xc3\xa9.example"),
        fields(port=b"0"),
        fields(port=b"65536"),
        fields(port=b"http"),
        fields(port=b"80/x"),
        fields(port=b"-1"),
        fields(path=b"up"),
        fields(path=b"/a b"),
        fields(path=b"/a#b"),
        fields(path=b"/a\r\nX: y"),
        fields(path=b"/\xff"),
        fields(auth=bytes(15)),
        fields(auth=bytes(17)),
        fields(key=b"\0"),
        fields(key=OFF_THE_CURVE),
        fields(key=DEVICE_KEY[:64]),
        fields(key=b"\x03" + DEVICE_KEY[1:]),
        fields()[:-1],
        fields()[:3],
        b"WP",
        # The first proposal of the reference: a URL, and two keys.
        b"WP" + b"".join(bytes((len(each),)) + each for each in (ENDPOINT.encode(), bytes(16), DEVICE_KEY)),
    ],
)
def test_what_is_no_proper_endpoint_is_refused(wire: bytes) -> None:
    """The reference stores some of these, and ends when it pushes to others (ntf-webpush.md 13)."""
    with pytest.raises(DecodeError):
        decoded(wire)


@given(st.binary(max_size=200).map(lambda data: b"WP" + data))
def test_whatever_is_read_from_the_wire_has_a_text(wire: bytes) -> None:
    reader = WireReader(wire)
    try:
        token = DeviceToken.decode(reader)
    except DecodeError:
        return
    if token.is_reference_web_push:
        assert DeviceToken.parse(token.text()) == token


@pytest.mark.parametrize(
    "text",
    [
        "webpush https://localhost:/ IiIiIiIiIiIiIiIiIiIiIg BEY",
        "webpush https://push.example.org/up",
        f"{TEXT} more",
        TEXT.replace(" Ii", "  Ii"),
        TEXT.replace("https", "http"),
        TEXT.replace("push.example.org", "[2001:db8::1]"),
        TEXT.replace("IiIiIi", "!!!!!!"),
        TEXT.replace("/up?t=1", "/" + "x" * 255),
    ],
)
def test_texts_that_are_no_tokens_are_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        DeviceToken.parse(text)


def test_the_longest_endpoint_fits_a_block_as_agents_register_it() -> None:
    path = "/".ljust(MAX_REFERENCE_ENDPOINT_BYTES - len("push.example.org"), "x")
    for port, cut in (("", 0), (":8443", 4)):
        url = f"https://push.example.org{port}{path[: len(path) - cut]}"
        token = DeviceToken(PushProvider.WEBPUSH, WebPushAddress.from_url(url, RECEIVER, REFERENCE).token())
        command = RegisterToken(token, E.public, CLIENT_DH.public)
        assert fits(3, E, b"", command)
        assert not fits(3, E, b"", RegisterToken(decoded(_longer(token)), E.public, CLIENT_DH.public))
        assert fits(3, E, TOKEN_ID, ReplaceToken(token))
        with pytest.raises(DecodeError, match="217 bytes: 216 fit"):
            WebPushAddress.from_url(url + "x", RECEIVER, REFERENCE)
        assert WebPushAddress.from_url(url, RECEIVER, None).form is REFERENCE
        assert WebPushAddress.from_url(url + "x", RECEIVER, None).form is WebPushForm.COMPACT


def _longer(token: DeviceToken) -> bytes:
    address = WebPushAddress.parse(token.token)
    return wire_of(DeviceToken(token.provider, replace(address, path=address.path + "x").token()))


def test_an_address_that_the_form_cannot_carry_takes_the_other_one() -> None:
    for url, reason in (("https://[2001:db8::1]/up", "IPv6"), ("https://a/up", "one character")):
        assert WebPushAddress.from_url(url, RECEIVER, None).form is WebPushForm.COMPACT
        with pytest.raises(DecodeError, match=reason):
            WebPushAddress.from_url(url, RECEIVER, REFERENCE)
    for form in (None, REFERENCE, WebPushForm.COMPACT):
        with pytest.raises(DecodeError, match="https address"):
            WebPushAddress.from_url("http://push.example.org/", RECEIVER, form)
