"""Commands that are refused before they are looked at: the raw cases of ntf.md 8.2, and 1.7."""

from __future__ import annotations

import os

import pytest

from tests.doubles.ntf_harness import Asked, Received, ntf_router
from tests.doubles.smp_harness import (
    AUTH,
    BLOCK,
    HAS_AUTH,
    NO_AUTH,
    SIG0,
    SYNTAX,
    UNKNOWN,
    Raw,
    authorized_with,
    ed448,
    ed25519,
    x25519,
)
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.errors import ConnectionLost
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.subscription_commands import CheckSubscription, DeleteSubscription
from tocsin.protocol.ntf.token_commands import (
    CheckToken,
    DeleteToken,
    RegisterToken,
    ReplaceToken,
    SetPeriodicPush,
    VerifyToken,
)
from tocsin.protocol.ping import Ping, Pong

TOKEN = DeviceToken(PushProvider.APNS_TEST, b"abcd")
NEW = RegisterToken(TOKEN, ed25519().public, x25519().public)
VERSIONS = (1, 2, 3)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("command", "entity_id", "key", "answer"),
    [
        (Raw(b"HELLO"), b"1234", None, UNKNOWN),
        (Raw(b"TNEW"), b"", SIG0, SYNTAX),
        (Raw(b"TNEW \x01A" + NEW.encode(1)[5:]), b"", SIG0, SYNTAX),
        (NEW, b"", None, NO_AUTH),
        (NEW, b"12345678", None, NO_AUTH),
        (NEW, b"12345678", SIG0, HAS_AUTH),
        (NEW, b"", SIG0, AUTH),
        (Raw(NEW.encode(1) + b"x"), b"", SIG0, SYNTAX),
        (Raw(b"TNEW T" + b"XX" + NEW.encode(1)[8:]), b"", SIG0, SYNTAX),
        (Ping(), b"", None, Pong()),
        (Ping(), b"1234", None, HAS_AUTH),
        (Ping(), b"", SIG0, HAS_AUTH),
        (Raw(b"PING "), b"", None, SYNTAX),
        (CheckToken(), b"12345678", None, NO_AUTH),
        (CheckToken(), b"", SIG0, NO_AUTH),
        (CheckSubscription(), b"", SIG0, NO_AUTH),
        (Raw(b"TVFY"), b"12345678", SIG0, SYNTAX),
        (Raw(b"TCRN"), b"12345678", SIG0, SYNTAX),
        (Raw(b"TCHK x"), b"12345678", SIG0, SYNTAX),
        (Raw(b"SNEW S"), b"", SIG0, SYNTAX),
        (Raw(b"OK"), b"12345678", SIG0, UNKNOWN),
    ],
)
async def test_a_malformed_command_is_refused_with_its_own_error(
    command: Command, entity_id: bytes, key: AuthPrivateKey | None, answer: Response, version: int
) -> None:
    async with ntf_router() as router:
        client = await router.connect(version)
        assert await client.ask(command, entity_id, key, corr_id=b"abcd") == answer


@pytest.mark.parametrize("key", [ed25519(), ed448(), x25519(), SIG0])
@pytest.mark.parametrize(
    "command",
    [
        CheckToken(),
        VerifyToken(bytes(32)),
        ReplaceToken(TOKEN),
        DeleteToken(),
        SetPeriodicPush(20),
        CheckSubscription(),
        DeleteSubscription(),
    ],
)
async def test_N01_an_unknown_entity_is_answered_with_auth(command: Command, key: AuthPrivateKey) -> None:
    """N1: with each kind of authorization."""
    async with ntf_router() as router:
        client = await router.connect()
        assert await client.ask(command, os.urandom(24), key) == AUTH


async def test_a_client_without_alpn_speaks_version_1() -> None:
    async with ntf_router() as router:
        client = await router.connect(1, alpn=())
        assert client.session.version == 1
        assert await client.ask(Ping()) == Pong()


async def test_a_bad_authorization_length_is_a_bad_block() -> None:
    async with ntf_router() as router:
        client = await router.connect()
        corr_ids = await client.send(Asked(CheckToken(), b"12345678", authorized_with(b"short")))
        assert await client.block() == [Received(corr_ids[0], b"", BLOCK)]


async def test_N11_errors_of_a_block_come_first_in_command_order() -> None:
    """N11: in a block of their own, and the connection goes on."""
    async with ntf_router() as router:
        client = await router.connect()
        missing = os.urandom(24)
        ids = await client.send(
            Asked(Ping(), corr_id=b"1"),
            Asked(CheckToken(), missing, SIG0, b"2"),
            Asked(Raw(b"WHAT"), missing, None, b"3"),
            Asked(Ping(), corr_id=b"4"),
        )
        assert await client.block() == [Received(ids[1], missing, AUTH), Received(ids[2], missing, UNKNOWN)]
        assert await client.block() == [Received(ids[0], b"", Pong()), Received(ids[3], b"", Pong())]


async def test_N24_a_silent_client_is_disconnected() -> None:
    """N24: also one that has only said hello."""
    async with ntf_router(inactive_ttl=0.0, inactive_check_interval=0.05) as router:
        client = await router.connect()
        with pytest.raises(ConnectionLost):
            await client.block()
        assert router.running.state.counters.connections_inactive == 1
