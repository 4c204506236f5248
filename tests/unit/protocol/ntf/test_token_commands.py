from __future__ import annotations

import pytest

from tests.appendix_a import sha256
from tests.unit.protocol.ntf.appendix_a import CLIENT_DH, CODE, CORR, ROUTER_DH, SESSION, TOKEN_ID, TOKEN_KEY
from tocsin.crypto.keys import X25519PrivateKey, X25519PublicKey
from tocsin.errors import DecodeError
from tocsin.protocol.messages import Command
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.token_commands import (
    CheckToken,
    DeleteToken,
    RegisterToken,
    ReplaceToken,
    SetPeriodicPush,
    VerifyToken,
)
from tocsin.protocol.sessions import BlockCoder, ClientSession, ReceivedCommand, RouterSession

TOKEN = DeviceToken(PushProvider.APNS_TEST, b"abcd")
TNEW = RegisterToken(TOKEN, TOKEN_KEY.public, CLIENT_DH.public)
TNEW_WIRE = b"TNEW TAT\x04abcd\x2c" + TOKEN_KEY.public.der + b"\x2c" + CLIENT_DH.public.der


def client(version: int, router_key: X25519PublicKey | None = None) -> ClientSession:
    return ClientSession(NTF, version, SESSION, BlockCoder(NTF.block_size), router_key)


def test_keys_are_those_of_the_appendix() -> None:
    assert CLIENT_DH.public.der.hex() == (
        "302a300506032b656e032100ce8d3ad1ccb633ec7b70c17814a5c76ecd029685050d344745ba05870e587d59"
    )
    assert CLIENT_DH.agree(ROUTER_DH.public).hex() == (
        "7c425a51f6a7f2e60012b0a34dd6511017807708b502ee66a2a247f171fda96c"
    )


@pytest.mark.parametrize(
    ("command", "wire"),
    [
        (TNEW, TNEW_WIRE),
        (VerifyToken(CODE), b"TVFY \x20" + CODE),
        (CheckToken(), b"TCHK"),
        (ReplaceToken(TOKEN), b"TRPL AT\x04abcd"),
        (DeleteToken(), b"TDEL"),
        (SetPeriodicPush(20), bytes.fromhex("5443524e200014")),
        (SetPeriodicPush(1440), bytes.fromhex("5443524e2005a0")),
    ],
)
def test_commands_have_the_layouts_of_the_appendix(command: Command, wire: bytes) -> None:
    for version in (1, 2, 3):
        assert command.encode(version) == wire
        assert NTF.commands.decode(wire, version) == command
        for length in range(len(wire)):
            with pytest.raises(DecodeError):
                NTF.commands.decode(wire[:length], version)


def test_the_registration_is_that_of_the_appendix() -> None:
    assert len(TNEW_WIRE) == 103
    transmission = client(3).request(CORR, b"", TNEW, TOKEN_KEY)
    received = RouterSession(NTF, 3, SESSION, BlockCoder(512), None).read_transmission(transmission)
    assert isinstance(received, ReceivedCommand)
    assert len(received.authorized) == 162
    assert sha256(received.authorized) == "a22ae379907feb2ffa6cc64bc61febbe6f3dda7fc81471662d9affb1879cc74d"
    assert received.auth.hex() == (
        "19c0f9a9a6c54ea0a12e099f91c35474321e6e72f6dce26b1fac08421b2db968"
        "e369a03459e510e6db58153374e27c0fa357fd17c680914f60768a109588c308"
    )


@pytest.mark.parametrize(
    ("version", "digest"),
    [
        (1, "32092621d4563a3f24595536cb4e13f531f12428322186034b93f102c9690492"),
        (2, "ee41919749b39baa92ae9d1fbc0c087cbfddacc28178110139d407e19f5dda64"),
        (3, "ee41919749b39baa92ae9d1fbc0c087cbfddacc28178110139d407e19f5dda64"),
    ],
)
def test_the_registration_block_is_that_of_the_appendix(version: int, digest: str) -> None:
    session = client(version)
    block = session.to_block([session.request(CORR, b"", TNEW, TOKEN_KEY)])
    assert sha256(block) == digest


def test_checks_are_authorized_as_in_the_appendix() -> None:
    signed = client(3).request(CORR, TOKEN_ID, CheckToken(), TOKEN_KEY)
    assert signed[1:65].hex() == (
        "3fdfbce54fb2d3ccc0ff2ec8207e1f5bbf28b3d9caab69f8120227ecf3b25e1f"
        "f19b2485010764f5fdc34c5c864f75ce164d102582b10dcf8be6c9bb7a0c4c0c"
    )
    router_key = X25519PrivateKey(b"\x13" * 32).public
    authenticated = client(3, router_key).request(
        CORR, TOKEN_ID, CheckToken(), X25519PrivateKey(b"\x12" * 32)
    )
    assert authenticated[1:81].hex() == (
        "5a45a0d26e43c88b65012128bdc500ffa0b7b8fb679725a7288a955fc6c01b75d902c5feb7bfb8bb"
        "f117bab72c4c3644868277ecc09eac0b127a56fb7460725fad915191c9bfd8e4a98787ae463c1bff"
    )


@pytest.mark.parametrize(
    "wire",
    [
        TNEW_WIRE.replace(b"TNEW T", b"TNEW S"),
        TNEW_WIRE.replace(b"AT\x04", b"XX\x04"),
        TNEW_WIRE + b"x",
        TNEW_WIRE.replace(CLIENT_DH.public.raw, bytes(32)),
        b"TRPL AX\x04abcd",
        b"TCRN \x00",
        b"TCRN \x00\x00\x00",
    ],
)
def test_malformed_commands_are_refused(wire: bytes) -> None:
    with pytest.raises(DecodeError):
        NTF.commands.decode(wire, 3)


def test_tokens_and_codes_are_not_shown() -> None:
    token = DeviceToken(PushProvider.APNS_PROD, b"s3cret-token")
    for command in (RegisterToken(token, TOKEN_KEY.public, CLIENT_DH.public), ReplaceToken(token)):
        assert "s3cret" not in repr(command)
    assert "s3cret" not in repr(VerifyToken(b"s3cret-code"))
