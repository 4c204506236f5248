from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.appendix_a import E448, E, X
from tests.strategies import web_push_addresses
from tests.unit.protocol.ntf.appendix_a import CLIENT_DH, CORR, ROUTER_DH, SESSION, TOKEN_ID
from tocsin.crypto.keys import AuthPrivateKey, Ed25519PrivateKey
from tocsin.crypto.web_push import WebPushReceiver, WebPushSecret
from tocsin.errors import DecodeError, LocalProtocolError
from tocsin.protocol.messages import Command
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.token_commands import RegisterToken, ReplaceToken
from tocsin.protocol.ntf.versions import BATCHES_VERSION
from tocsin.protocol.ntf.web_push_tokens import (
    MAX_WEB_PUSH_TOKEN_BYTES,
    WebPushAddress,
    endpoint_location,
    parse_push_service,
    push_service,
)
from tocsin.protocol.sessions import BlockCoder, ClientSession

# The device of RFC 8291.
RECEIVER = WebPushSecret(
    base64.urlsafe_b64decode("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94=")
    + base64.urlsafe_b64decode("BTBZMqHH6r4Tts7J_aSIgg==")
).receiver
KEYS = b"BTBZMqHH6r4Tts7J_aSIggIlcbK-zf3jYFUarx7Q9M02bBHOvlVfiby3sYalMzkXMQ"
ENDPOINT = "https://push.example.net/push/JzLQ3raZJfFBR0aqvOMsLrt54w4rJUsV"


def test_a_token_holds_keys_and_endpoint() -> None:
    address = WebPushAddress.from_url(ENDPOINT, RECEIVER)
    assert address == WebPushAddress(
        RECEIVER, "push.example.net", 443, "/push/JzLQ3raZJfFBR0aqvOMsLrt54w4rJUsV"
    )
    token = address.token()
    assert token == KEYS + b"push.example.net/push/JzLQ3raZJfFBR0aqvOMsLrt54w4rJUsV"
    assert len(KEYS) == 66
    assert WebPushAddress.parse(token) == address
    assert (address.url, address.origin) == (ENDPOINT, "https://push.example.net")


@given(web_push_addresses)
def test_addresses_are_read_back(address: WebPushAddress) -> None:
    token = address.token()
    assert WebPushAddress.parse(token) == address
    assert WebPushAddress.parse(token).token() == token
    assert WebPushAddress.from_url(address.url, address.receiver) == address
    assert token.isascii()
    assert b" " not in token


@given(st.binary(max_size=120) | st.binary(max_size=60).map(lambda rest: KEYS + rest))
def test_whatever_is_read_has_no_other_form(token: bytes) -> None:
    try:
        address = WebPushAddress.parse(token)
    except DecodeError:
        return
    assert address.token() == token


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("https://ntfy.example/upABC?up=1", "https://ntfy.example/upABC?up=1"),
        ("HTTPS://Push.Example.NET/Path", "https://push.example.net/Path"),
        ("https://push.example.net:443/a", "https://push.example.net/a"),
        ("https://push.example.net:8443/a", "https://push.example.net:8443/a"),
        ("https://push.example.net:08443/a", "https://push.example.net:8443/a"),
        ("https://push.example.net", "https://push.example.net/"),
        ("https://push.example.net?q=1", "https://push.example.net/?q=1"),
        ("https://192.0.2.7/a", "https://192.0.2.7/a"),
        ("https://[2001:DB8::0:1]:99/a", "https://[2001:db8::1]:99/a"),
        ("https://a.onion/%2f~:@!$&'()*+,;=-._", "https://a.onion/%2f~:@!$&'()*+,;=-._"),
    ],
)
def test_endpoints_have_one_form(url: str, canonical: str) -> None:
    address = WebPushAddress.from_url(url, RECEIVER)
    assert address.url == canonical
    assert WebPushAddress.parse(address.token()) == address
    assert endpoint_location(url) == (address.host, address.port, address.path)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "https address"),
        ("http://push.example.net/a", "https address"),
        ("push.example.net/a", "https address"),
        ("https://user@push.example.net/a", "user name"),
        ("https://user:password@push.example.net/a", "user name"),
        ("https://push.example.net/a#b", "fragment"),
        ("https://push.example.net#b", "fragment"),
        ("https://push.example.net/a b", "path"),
        ("https://push.example.net/a\n", "path"),
        ("https://push.example.net/\u00e4", "path"),
        ("https://push.example.net/%zz", "path"),
        ('https://push.example.net/"', "path"),
        ("https:///a", "not a domain name"),
        ("https://.example/a", "not a domain name"),
        ("https://example./a", "not a domain name"),
        ("https://exa_mple/a", "not a domain name"),
        ("https://-example/a", "not a domain name"),
        ("https://push example/a", "not a domain name"),
        (f"https://{'a' * 64}.example/a", "not a domain name"),
        (f"https://{'a.' * 130}example/a", "not a domain name"),
        ("https://b\u00fccher.example/a", "a name or an IP address"),
        ("https://\u212aelvin.example/a", "a name or an IP address"),
        ("https://2001:db8::1/a", "a name or an IP address"),
        ("https://[2001:db8::1/a", "a name or an IP address"),
        ("https://[::1]x/a", "a name or an IP address"),
        ("https://[]/a", "not an IP address"),
        ("https://[::g]/a", "a name or an IP address"),
        ("https://[::ffff:192.0.2.7]/a", "not an IP address"),
        ("https://127.1/a", "not an IP address"),
        ("https://2130706433/a", "not an IP address"),
        ("https://127.0.0.0x1/a", "not an IP address"),
        ("https://127.0.0.01/a", "not an IP address"),
        ("https://push.example.net:/a", "port"),
        ("https://push.example.net:0/a", "port"),
        ("https://push.example.net:65536/a", "port"),
        ("https://push.example.net:999999/a", "port"),
        ("https://push.example.net:x/a", "a name or an IP address"),
    ],
)
def test_other_endpoints_are_refused_by_what_is_wrong(url: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        WebPushAddress.from_url(url, RECEIVER)
    with pytest.raises(DecodeError, match=reason):
        endpoint_location(url)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"", "66 characters"),
        (KEYS, "domain name"),
        (KEYS[:65] + b"=push.example.net/a", "66 characters"),
        (b"+" + KEYS[1:] + b"push.example.net/a", "66 characters"),
        (KEYS[:65] + b"R" + b"push.example.net/a", "one form"),
        (KEYS[:22] + b"B" + KEYS[23:] + b"push.example.net/a", "the key of a Web Push token"),
        (b"A" * 66 + b"push.example.net/a", "the key of a Web Push token"),
        (KEYS + b"Push.example.net/a", "one form"),
        (KEYS + b"push.example.net", "one form"),
        (KEYS + b"push.example.net?a", "one form"),
        (KEYS + b"push.example.net:443/a", "one form"),
        (KEYS + b"push.example.net:0080/a", "one form"),
        (KEYS + b"[2001:DB8::1]/a", "one form"),
        (KEYS + b"https://push.example.net/a", "port"),
        (KEYS + b"push.example.net/\xe4", "path"),
        (KEYS + b"push.example.net/a b", "path"),
        (KEYS + b"me@push.example.net/a", "user name"),
        (
            KEYS + b"push.example.net/".ljust(MAX_WEB_PUSH_TOKEN_BYTES - 65, b"a"),
            "301 bytes: 300 fit a block, 234",
        ),
    ],
)
def test_other_tokens_are_refused_by_what_is_wrong(token: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        WebPushAddress.parse(token)


def test_the_path_and_the_keys_do_not_show() -> None:
    shown = repr(WebPushAddress.from_url("https://push.example.net/secret", RECEIVER))
    assert "push.example.net" in shown
    assert "secret" not in shown
    assert repr(RECEIVER.auth)[2:-1] not in shown


# What fits a block


def fits(version: int, key: AuthPrivateKey, entity_id: bytes, command: Command) -> bool:
    """As clients send it, with the session id of TLS 1.3."""
    router_key = ROUTER_DH.public if version >= BATCHES_VERSION else None
    session = ClientSession(NTF, version, SESSION, BlockCoder(NTF.block_size), router_key)
    transmission = session.request(CORR, entity_id, command, key)
    try:
        session.require_fits(transmission)
    except LocalProtocolError:
        return False
    assert len(session.to_block([transmission])) == NTF.block_size
    return True


def device_token(length: int) -> DeviceToken:
    return DeviceToken(PushProvider.WEBPUSH, b"x" * length)


def longest(version: int, key: AuthPrivateKey) -> int:
    """The longest token that TNEW and TRPL can carry."""

    def both(length: int) -> bool:
        token = device_token(length)
        registration = RegisterToken(token, key.public, CLIENT_DH.public)
        return fits(version, key, b"", registration) and fits(version, key, TOKEN_ID, ReplaceToken(token))

    return max(length for length in range(512) if both(length))


def test_the_longest_token_fits_a_block_as_agents_register_it() -> None:
    assert len(SESSION) == 32
    assert len(TOKEN_ID) == len(CORR) == 24
    assert {version: longest(version, E) for version in range(1, 4)} == {1: 267, 2: 300, 3: 300}
    assert {version: longest(version, X) for version in (2, 3)} == {2: 284, 3: 284}
    assert longest(3, E448) == 225
    assert longest(3, E) == MAX_WEB_PUSH_TOKEN_BYTES
    assert isinstance(E, Ed25519PrivateKey), "of which kind the agent's keys are"


@pytest.mark.parametrize(
    ("place", "characters"),
    [
        ("ntfy.sh/up", 12),
        ("fcm.googleapis.com/fcm/send/", 163),
        ("updates.push.services.mozilla.com/wpush/v1/", 140),
        ("updates.push.services.mozilla.com/wpush/v2/", 183),
    ],
)
def test_endpoints_of_the_large_services_fit(place: str, characters: int) -> None:
    address = WebPushAddress.from_url(f"https://{place}{'x' * characters}", RECEIVER)
    assert WebPushAddress.parse(address.token()) == address


def test_endpoint_that_is_too_long_is_refused() -> None:
    url = "https://push.example.net/".ljust(8 + 234, "a")
    assert len(WebPushAddress.from_url(url, RECEIVER).token()) == MAX_WEB_PUSH_TOKEN_BYTES
    with pytest.raises(DecodeError, match="301 bytes"):
        WebPushAddress.from_url(url + "a", RECEIVER)
    # Of a host in capitals and a port that is left out only what stays is counted.
    assert WebPushAddress.from_url(url.replace("net/", "net:443/"), RECEIVER).url == url


def test_receivers_differ_by_key_and_secret() -> None:
    other = WebPushReceiver(RECEIVER.public_key, bytes(16))
    assert (
        WebPushAddress.from_url(ENDPOINT, other).token()
        != WebPushAddress.from_url(ENDPOINT, RECEIVER).token()
    )


@given(web_push_addresses)
def test_the_service_of_a_token_is_that_of_its_origin(address: WebPushAddress) -> None:
    service = push_service(address.token())
    assert f"https://{service}" == address.origin
    assert parse_push_service(service) == service


def test_a_service_has_one_spelling_and_no_path() -> None:
    assert parse_push_service("Push.Example:443") == "push.example"
    for wrong in ("https://push.example", "push.example/x", "push.example?x", "a b", "", "push.example:0"):
        with pytest.raises(DecodeError):
            parse_push_service(wrong)
    with pytest.raises(DecodeError):
        push_service(KEYS + b"user@push.example/")
