"""Commands that are refused for what they are, before anything is done (smp-tests.md 3, smp.md 6.1, 6.2)."""

from __future__ import annotations

import base64
import os

import pytest

from tests.doubles.smp_harness import (
    AUTH,
    BLOCK,
    HAS_AUTH,
    NO_AUTH,
    NO_ENTITY,
    SESSION,
    SIG0,
    SYNTAX,
    UNKNOWN,
    Asked,
    Raw,
    Received,
    authorized_with,
    smp_router,
)
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.protocol.messages import Response
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.smp.recipient_commands import Subscribe
from tocsin.wire.writer import short

SIGNING_KEY = base64.b64decode("MCowBQYDK2VwAyEAfAOflyvbJv1fszgzkQ6buiZJVgSpQWsucXq7U6zjMgY=")
DH_KEY = base64.b64decode("MCowBQYDK2VuAyEAriy+HcARIhqsgSjVnjKqoft+y6pxrxdY68zn4+LjYhQ=")
X448_KEY = bytes.fromhex("3042300506032b656f033900") + b"\x05" * 56
MISSING = b"12345678"
CREATE = b"NEW " + short(SIGNING_KEY) + short(DH_KEY) + b"0S1M00"
SECURE = b"KEY " + short(SIGNING_KEY)
SEND = b"SEND F \x05hello"
ACK = b"ACK \x041234"

CASES: list[tuple[str, AuthPrivateKey | None, bytes, bytes, Response]] = [
    ("S1", None, b"1234", b"HELLO", UNKNOWN),
    ("S2", SIG0, b"", b"NEW", SYNTAX),
    ("S3", SIG0, b"", b"NEW \x01A" + short(SIGNING_KEY) + short(DH_KEY) + b"0S1M00", SYNTAX),
    ("S4", None, b"", CREATE, NO_AUTH),
    ("S5", SIG0, MISSING, CREATE, HAS_AUTH),
    ("S6", SIG0, MISSING, SECURE, AUTH),
    ("S7", SIG0, MISSING, b"KEY", SYNTAX),
    ("S8", SIG0, MISSING, b"KEY \x01A" + short(SIGNING_KEY), SYNTAX),
    ("S9", None, MISSING, SECURE, NO_AUTH),
    ("S10", SIG0, b"", SECURE, NO_AUTH),
    ("S11", SIG0, MISSING, b"SUB", AUTH),
    ("S12", SIG0, MISSING, b"OFF", AUTH),
    ("S13", SIG0, MISSING, b"DEL", AUTH),
    ("S14", SIG0, MISSING, b"SUB=", UNKNOWN),
    ("S15", SIG0, MISSING, b"OFF=", UNKNOWN),
    ("S16", SIG0, MISSING, b"DEL=", UNKNOWN),
    ("S17", None, MISSING, b"SUB", NO_AUTH),
    ("S18", None, MISSING, b"OFF", NO_AUTH),
    ("S19", None, MISSING, b"DEL", NO_AUTH),
    ("S20", SIG0, b"", b"SUB", NO_AUTH),
    ("S21", SIG0, b"", b"OFF", NO_AUTH),
    ("S22", SIG0, b"", b"DEL", NO_AUTH),
    ("S23", SIG0, MISSING, SEND, AUTH),
    ("S24", SIG0, MISSING, b"SEND", SYNTAX),
    ("S25", SIG0, b"", SEND, NO_ENTITY),
    ("S26", SIG0, MISSING, ACK, AUTH),
    ("S27", SIG0, MISSING, b"ACK", SYNTAX),
    ("S28", SIG0, b"", ACK, NO_AUTH),
    ("S29", None, MISSING, ACK, NO_AUTH),
    ("S30", None, b"", b"PING", Pong()),
    ("S31", SIG0, MISSING, b"OK", UNKNOWN),
    ("a space behind SUB", SIG0, MISSING, b"SUB ", SYNTAX),
    ("something behind SUB", SIG0, MISSING, b"SUB x", SYNTAX),
    ("flags without a body", SIG0, MISSING, b"SEND T", SYNTAX),
    ("an empty body", SIG0, MISSING, b"SEND T ", AUTH),
    ("an unknown command before its credentials", None, b"", b"WHAT", UNKNOWN),
    ("syntax before credentials", None, b"", b"KEY", SYNTAX),
    ("credentials before the queue", None, MISSING, b"NDEL", NO_AUTH),
    ("RKEY without keys", SIG0, MISSING, b"RKEY \x00", SYNTAX),
    ("an X448 key", SIG0, MISSING, b"KEY " + short(X448_KEY), SYNTAX),
    ("a key that is none", SIG0, MISSING, b"SKEY " + short(b"\0" * 44), SYNTAX),
    ("a signing key for key agreement", SIG0, MISSING, b"NKEY " + short(SIGNING_KEY) * 2, SYNTAX),
    ("LGET without a link", None, b"", b"LGET", NO_ENTITY),
    ("LGET signed", SIG0, MISSING, b"LGET", HAS_AUTH),
    ("PING signed", SIG0, b"", b"PING", HAS_AUTH),
    ("PFWD without a session", None, b"", b"PFWD \x00\x11" + short(DH_KEY), NO_ENTITY),
]


@pytest.mark.parametrize(
    ("key", "entity_id", "command", "answer"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
async def test_a_command_is_refused_for_its_form(
    key: AuthPrivateKey | None, entity_id: bytes, command: bytes, answer: Response
) -> None:
    async with smp_router() as router:
        client = await router.connect()
        assert await client.ask(Raw(command), entity_id, key) == answer


async def test_an_authorization_of_a_strange_length_is_no_authorization() -> None:
    """The correlation id is repeated, the entity is not (smp.md 5.1)."""
    async with smp_router() as router:
        client = await router.connect()
        [corr_id] = await client.send(Asked(Subscribe(), MISSING, authorized_with(bytes(63))))
        assert await client.block() == [Received(corr_id, b"", BLOCK)]
        assert await client.ask(Ping()) == Pong()


async def test_a_transmission_that_cannot_be_taken_apart_is_answered_without_ids() -> None:
    async with smp_router() as router:
        client = await router.connect()
        await client.connection.send([b"\x00\x18too short"])
        assert await client.block() == [Received(b"", b"", BLOCK)]
        assert await client.ask(Ping()) == Pong()


async def test_a_block_that_does_not_decrypt_is_refused_and_the_session_goes_on() -> None:
    async with smp_router() as router:
        client = await router.connect(encrypted=True)
        assert client.session.encrypted
        block = bytearray(client.session.to_block([b"\0\0\0PING"]))
        block[100] ^= 1
        assert client.connection._connection.try_write_block(bytes(block))
        assert await client.block() == [Received(b"", b"", BLOCK)]
        assert await client.ask(Ping()) == Pong()


async def test_version_6_refuses_another_session_id() -> None:
    async with smp_router() as router:
        client = await router.connect(6)
        corr_id = os.urandom(24)
        await client.connection.send([b"\0" + short(bytes(32)) + short(corr_id) + b"\0PING"])
        [answer] = await client.connection.receive()
        assert answer.corr_id == corr_id
        assert answer.entity_id == b""
        assert answer.response == SESSION


async def test_version_6_looks_at_the_session_id_before_the_authorization_and_the_command() -> None:
    """The order of checks of smp.md 6.1."""
    async with smp_router() as router:
        client = await router.connect(6)
        for session_id, answer in ((bytes(32), SESSION), (client.session.session_id, BLOCK)):
            await client.connection.send([short(bytes(63)) + short(session_id) + short(b"c") + b"\0WHAT"])
            [received] = await client.connection.receive()
            assert (received.corr_id, received.entity_id, received.response) == (b"c", b"", answer)


async def test_a_client_without_alpn_gets_version_6() -> None:
    async with smp_router() as router:
        client = await router.connect(6, alpn=())
        assert await client.ask(Ping()) == Pong()
