from __future__ import annotations

import pytest

from tests.appendix_a import E448, B, E, X
from tocsin.crypto.keys import X25519PublicKey
from tocsin.errors import DecodeError
from tocsin.protocol.messages import Command, ServiceSigning
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.queue_modes import (
    LinkData,
    LinkRequest,
    NotifierKeys,
    QueueMode,
    QueueRequest,
    SubscriptionMode,
)
from tocsin.protocol.smp.recipient_commands import (
    AcknowledgeMessage,
    CreateQueue,
    EnableNotifications,
    ReplaceRecipientKeys,
    SecureQueue,
    SetLinkData,
)

KEYS = b"\x2c" + E.public.der + b"\x2c" + X.public.der
MESSAGING, CONTACT = QueueRequest(QueueMode.MESSAGING), QueueRequest(QueueMode.CONTACT)
CREATE_ONLY = SubscriptionMode.CREATE_ONLY
NOTIFIER = NotifierKeys(E448.public, B)


def test_new_is_that_of_appendix_a6() -> None:
    wire = CreateQueue(E.public, X.public, request=MESSAGING).encode(18)
    assert wire == b"NEW " + KEYS + b"0S1M00"
    assert len(wire) == 100


@pytest.mark.parametrize(
    ("versions", "command", "end"),
    [
        (range(6, 9), CreateQueue(E.public, X.public), b"S"),
        (range(6, 9), CreateQueue(E.public, X.public, b"pw", CREATE_ONLY), b"A\x02pwC"),
        (range(9, 15), CreateQueue(E.public, X.public, request=MESSAGING), b"0ST"),
        (range(9, 15), CreateQueue(E.public, X.public, b"pw", CREATE_ONLY, CONTACT), b"1\x02pwCF"),
        (range(15, 17), CreateQueue(E.public, X.public), b"0S0"),
        (range(15, 17), CreateQueue(E.public, X.public, b"", request=CONTACT), b"1\x00S1C0"),
        (
            range(15, 17),
            CreateQueue(
                E.public,
                X.public,
                request=QueueRequest(QueueMode.MESSAGING, LinkRequest(None, b"snd", LinkData(b"f", b"us"))),
            ),
            b"0S1M1\x03snd\x00\x01f\x00\x02us",
        ),
        (
            range(17, 19),
            CreateQueue(
                E.public,
                X.public,
                request=QueueRequest(QueueMode.CONTACT, LinkRequest(b"lnk", b"snd", LinkData(b"f", b"us"))),
                notifier=NOTIFIER,
            ),
            b"0S1C1\x03lnk\x03snd\x00\x01f\x00\x02us1\x45" + E448.public.der + b"\x2c" + B.der,
        ),
    ],
)
def test_new_has_the_layout_of_each_version(versions: range, command: CreateQueue, end: bytes) -> None:
    for version in versions:
        wire = b"NEW " + KEYS + end
        assert command.encode(version) == wire
        assert SMP.commands.decode(wire, version) == command
        for length in range(len(wire)):
            with pytest.raises(DecodeError):
                SMP.commands.decode(wire[:length], version)
        with pytest.raises(DecodeError, match="left over"):
            SMP.commands.decode(wire + b"0", version)


@pytest.mark.parametrize("end", [b"0X1M00", b"2S1M00", b"0S2M00", b"0S1X00", b"0S1M20", b"0S1M02"])
def test_new_with_an_unknown_letter_is_refused(end: bytes) -> None:
    with pytest.raises(DecodeError):
        SMP.commands.decode(b"NEW " + KEYS + end, 18)


def test_new_with_a_low_order_key_is_refused() -> None:
    """Recorded routers accept it, and everybody can read such a queue (smp.md 1.5)."""
    wire = CreateQueue(E.public, X25519PublicKey(bytes(32))).encode(18)
    with pytest.raises(DecodeError, match="low order"):
        SMP.commands.decode(wire, 18)


@pytest.mark.parametrize(
    ("command", "wire"),
    [
        (SecureQueue(E.public), b"KEY \x2c" + E.public.der),
        (
            ReplaceRecipientKeys((E.public, X.public, E448.public)),
            b"RKEY \x03" + KEYS + b"\x45" + E448.public.der,
        ),
        (SetLinkData(b"link", LinkData(b"fixed", b"")), b"LSET \x04link\x00\x05fixed\x00\x00"),
        (EnableNotifications(NOTIFIER), b"NKEY \x45" + E448.public.der + b"\x2c" + B.der),
        (AcknowledgeMessage(b"id"), b"ACK \x02id"),
        (AcknowledgeMessage(b""), b"ACK \x00"),
    ],
)
def test_commands_have_their_layouts(command: Command, wire: bytes) -> None:
    for version in range(6, 19):
        assert command.encode(version) == wire
        assert SMP.commands.decode(wire, version) == command
        for length in range(len(wire)):
            with pytest.raises(DecodeError):
                SMP.commands.decode(wire[:length], version)


def test_a_list_of_no_keys_is_refused() -> None:
    with pytest.raises(DecodeError, match="empty list"):
        SMP.commands.decode(b"RKEY \x00", 18)


def test_services_sign_beside_the_queue_or_alone() -> None:
    """smp.md 5.4."""
    signing = {kind.tag.decode(): kind.service_signing for kind in SMP.commands.kinds}
    assert {tag for tag, rule in signing.items() if rule is ServiceSigning.BESIDE} == {"NEW", "SUB", "NSUB"}
    assert {tag for tag, rule in signing.items() if rule is ServiceSigning.ALONE} == {"SUBS", "NSUBS"}
