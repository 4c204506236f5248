from __future__ import annotations

import pytest

from tests.appendix_a import KEY_HASH, B
from tocsin.errors import DecodeError
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.messages import Command
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.proxy_commands import ForwardToRelay, RelayForwarded, RequestProxySession

RELAY = RouterLocation(("smp.example.com",), "5223", KEY_HASH)


@pytest.mark.parametrize(
    ("command", "wire"),
    [
        (
            RequestProxySession(RELAY),
            bytes.fromhex("5052585920010f736d702e6578616d706c652e636f6d043532323320") + KEY_HASH + b"0",
        ),
        (
            RequestProxySession(RELAY, b"pw"),
            b"PRXY \x01\x0fsmp.example.com\x045223\x20" + KEY_HASH + b"1\x02pw",
        ),
        (ForwardToRelay(17, B, b"sealed"), b"PFWD \x00\x11\x2c" + B.der + b"sealed"),
        (RelayForwarded(b"sealed"), b"RFWD sealed"),
    ],
)
def test_commands_have_their_layouts(command: Command, wire: bytes) -> None:
    """The first is in appendix A.6."""
    for version in (8, 18):
        assert command.encode(version) == wire
        assert SMP.commands.decode(wire, version) == command


@pytest.mark.parametrize(
    "wire",
    [
        b"PRXY \x00\x00\x00" + b"0",
        b"PRXY \x01\x03a b\x00\x200" + KEY_HASH,
        b"PRXY \x01\x02\xff\xfe\x00\x20" + KEY_HASH + b"0",
        b"PFWD \x00\x11\x2c" + B.der_prefix + bytes(32),
        b"PFWD \x00",
    ],
)
def test_malformed_commands_are_refused(wire: bytes) -> None:
    with pytest.raises(DecodeError):
        SMP.commands.decode(wire, 18)
