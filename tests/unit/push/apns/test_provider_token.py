"""The JWT: its form, how long it lives, and that all share it."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from tests.unit.push.stage import PUSH, Stage, staged
from tocsin.errors import BadKey
from tocsin.push.apns.request import LIFETIME_SECONDS, SHORTEST_LIFE_SECONDS, ProviderToken
from tocsin.push.fake.behaviours import Respond
from tocsin.push.fake.request_checks import Rules
from tocsin.push.fake.server import running_fake_apns
from tocsin.push.provider import Accepted, RetryLater, RetryScope

KEY = ec.generate_private_key(ec.SECP256R1())
START = 1_800_000_000
EXPIRED = Respond(403, "ExpiredProviderToken")


class HeldClock:
    def __init__(self) -> None:
        self.now = START + 0.7

    def __call__(self) -> float:
        return self.now


def pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey, password: bytes | None = None) -> bytes:
    encryption = (
        serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    )
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def token(clock: HeldClock) -> ProviderToken:
    return ProviderToken(pem(KEY), "H82WD9K9AQ", "5NN7GUYB6T", clock)


def decoded(part: bytes) -> bytes:
    return base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))


def test_the_token_is_what_the_reference_makes_but_for_the_form_of_its_signature(
    token: ProviderToken,
) -> None:
    scheme, text = token.authorization().split(b" ")
    assert scheme == b"bearer"
    header, claims, signature = text.split(b".")
    assert decoded(header) == b'{"alg":"ES256","kid":"H82WD9K9AQ"}'
    assert decoded(claims) == b'{"iss":"5NN7GUYB6T","iat":1800000000}'
    raw = decoded(signature)
    assert len(raw) == 64
    assert b"=" not in text
    der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    KEY.public_key().verify(der, header + b"." + claims, ec.ECDSA(hashes.SHA256()))


def test_a_token_lives_half_an_hour(token: ProviderToken, clock: HeldClock) -> None:
    first = token.authorization()
    clock.now = START + LIFETIME_SECONDS - 0.1
    assert token.authorization() is first
    clock.now = START + LIFETIME_SECONDS
    assert token.authorization() != first


def test_a_clock_that_was_put_back_gets_a_new_token(token: ProviderToken, clock: HeldClock) -> None:
    first = token.authorization()
    clock.now -= 100
    assert json.loads(decoded(token.authorization().split(b".")[1]))["iat"] == START - 100
    assert token.authorization() != first


def test_an_expired_token_is_replaced_once_for_all(token: ProviderToken, clock: HeldClock) -> None:
    first = token.authorization()
    assert not token.expired(first)  # too young: a new one would hardly differ
    clock.now += SHORTEST_LIFE_SECONDS
    assert token.expired(first)
    second = token.authorization()
    clock.now += SHORTEST_LIFE_SECONDS
    assert token.expired(first)  # told by another push: there is a newer one already
    assert token.authorization() is second != first


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"not a key",
        pem(ed25519.Ed25519PrivateKey.generate()),
        pem(ec.generate_private_key(ec.SECP384R1())),
        pem(KEY, b"password"),
    ],
    ids=["empty", "garbage", "Ed25519", "P-384", "encrypted"],
)
def test_another_key_is_refused_at_the_start(file: bytes) -> None:
    with pytest.raises(BadKey):
        ProviderToken(file, "id", "team", HeldClock())


@pytest.fixture
async def stage(tmp_path: Path, token: ProviderToken, clock: HeldClock) -> AsyncIterator[Stage]:
    rules = Rules(public_key=KEY.public_key())
    async with running_fake_apns(tmp_path, rules=rules, now=clock) as apns, staged(apns, token) as stage:
        yield stage


async def test_all_pushes_carry_the_same_token_and_the_provider_verifies_it(stage: Stage) -> None:
    assert await stage.push_all(b"01", b"02", b"03") == [Accepted()] * 3
    assert len({push.header(b"authorization") for push in stage.apns.pushes}) == 1


async def test_an_expired_token_is_replaced_and_the_push_sent_again(stage: Stage, clock: HeldClock) -> None:
    await stage.push()
    clock.now += SHORTEST_LIFE_SECONDS
    stage.apns.behave(EXPIRED, times=3)
    assert await stage.push_all(b"01", b"02", b"03") == [Accepted()] * 3
    used = [push.header(b"authorization") for push in stage.apns.requests]
    assert used[0] == used[1] == used[2] == used[3]
    assert used[4] == used[5] == used[6] != used[0]


async def test_a_token_that_stays_expired_is_tried_later(stage: Stage, clock: HeldClock) -> None:
    await stage.push()
    clock.now += SHORTEST_LIFE_SECONDS
    stage.apns.behave(EXPIRED, times=None)
    assert await stage.push() == RetryLater("ExpiredProviderToken", RetryScope.PROVIDER, 60.0)
    assert len(stage.apns.requests) == 3


async def test_a_token_of_another_key_is_refused(stage: Stage, clock: HeldClock) -> None:
    other = ProviderToken(pem(ec.generate_private_key(ec.SECP256R1())), "id", "team", clock)
    async with staged(stage.apns, other) as second:
        outcome = await second.provider.send(PUSH)
        assert outcome == RetryLater("InvalidProviderToken", RetryScope.PROVIDER, 60.0)
    async with staged(stage.apns) as second:
        outcome = await second.provider.send(PUSH)
        assert outcome == RetryLater("MissingProviderToken", RetryScope.PROVIDER, 60.0)
