from __future__ import annotations

import pytest

from tests.appendix_a import E, X
from tocsin.errors import DecodeError
from tocsin.protocol.messages import Command
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.sender_commands import (
    GetLinkData,
    MessageFlags,
    SecureLinkedQueue,
    SecureQueueBySender,
    SendMessage,
    max_message_bytes,
)


@pytest.mark.parametrize(
    ("command", "wire"),
    [
        (SendMessage(MessageFlags(True), b"hello"), b"SEND T hello"),
        (SendMessage(MessageFlags(False), b""), b"SEND F "),
        (SendMessage(MessageFlags(True, b"future"), b" a b"), b"SEND Tfuture  a b"),
        (SecureQueueBySender(E.public), b"SKEY \x2c" + E.public.der),
        (SecureLinkedQueue(X.public), b"LKEY \x2c" + X.public.der),
        (GetLinkData(), b"LGET"),
    ],
)
def test_commands_have_their_layouts(command: Command, wire: bytes) -> None:
    for version in range(6, 19):
        assert command.encode(version) == wire
        assert SMP.commands.decode(wire, version) == command


@pytest.mark.parametrize(
    "wire", [b"SEND", b"SEND ", b"SEND T", b"SEND X hello", b"SEND t hello", b"SEND  hello"]
)
def test_send_without_flags_or_space_is_refused(wire: bytes) -> None:
    with pytest.raises(DecodeError):
        SMP.commands.decode(wire, 18)


def test_longest_messages_depend_on_the_version() -> None:
    assert [max_message_bytes(version) for version in (6, 7, 8, 10, 11, 18)] == [
        16088,
        16088,
        16064,
        16064,
        16048,
        16048,
    ]
