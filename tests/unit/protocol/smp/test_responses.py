from __future__ import annotations

import pytest

from tests.appendix_a import B, E, N, X
from tocsin.crypto.signed_keys import SignedKey
from tocsin.errors import DecodeError
from tocsin.protocol.certificate_keys import CertificateChainKey
from tocsin.protocol.messages import Response
from tocsin.protocol.router_answers import Done
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.queue_modes import LinkData, NotifierIds, QueueMode
from tocsin.protocol.smp.responses import (
    ForwardedAnswer,
    LinkContent,
    MessageReceived,
    NotificationReceived,
    NotificationsEnabled,
    ProxySession,
    QueueCreated,
    QueueDeleted,
    QueueInspected,
    RelayAnswer,
    ServiceSubscribed,
    ServiceSubscriptionEnded,
    Subscribed,
    SubscriptionEnded,
)
from tocsin.wire.versions import VersionRange

RCV, SND, SERVICE = b"\x01" * 24, b"\x02" * 24, b"\x07" * 24
IDS = b"IDS \x18" + RCV + b"\x18" + SND + b"\x2c" + B.der
SIGNED = SignedKey.sign(X.public, E)


def test_ids_is_that_of_appendix_a6() -> None:
    wire = QueueCreated(RCV, SND, B, QueueMode.MESSAGING).encode(18)
    assert wire == IDS + b"1M000"
    assert len(wire) == 104


@pytest.mark.parametrize(
    ("versions", "response", "end"),
    [
        (range(6, 9), QueueCreated(RCV, SND, B), b""),
        (range(9, 15), QueueCreated(RCV, SND, B, QueueMode.MESSAGING), b"T"),
        (range(9, 15), QueueCreated(RCV, SND, B, QueueMode.CONTACT), b"F"),
        (range(15, 16), QueueCreated(RCV, SND, B), b"00"),
        (range(15, 16), QueueCreated(RCV, SND, B, QueueMode.CONTACT, b"lnk"), b"1C1\x03lnk"),
        (range(16, 17), QueueCreated(RCV, SND, B, service_id=b"svc"), b"001\x03svc"),
        (
            range(17, 19),
            QueueCreated(RCV, SND, B, notifier=NotifierIds(b"ntf", X.public)),
            b"0001\x03ntf\x2c" + X.public.der,
        ),
    ],
)
def test_ids_has_the_layout_of_each_version(versions: range, response: QueueCreated, end: bytes) -> None:
    for version in versions:
        assert response.encode(version) == IDS + end
        assert SMP.responses.decode(IDS + end, version) == response
        with pytest.raises(DecodeError):
            SMP.responses.decode(IDS + end + b"0", version)
        for length in range(len(IDS + end)):
            with pytest.raises(DecodeError):
                SMP.responses.decode((IDS + end)[:length], version)


def test_a_subscription_is_confirmed_with_ok_before_version_16() -> None:
    for version in range(6, 16):
        assert Subscribed().encode(version) == b"OK"
        assert SMP.responses.decode(b"OK", version) == Done()
    for version in range(16, 19):
        assert Subscribed().encode(version).hex() == "534f4b2030"
        assert Subscribed(SERVICE).encode(version) == b"SOK 1\x18" + SERVICE


def test_a_deleted_queue_is_told_with_end_before_version_10() -> None:
    for version in range(6, 10):
        assert QueueDeleted().encode(version) == b"END"
        assert SMP.responses.decode(b"END", version) == SubscriptionEnded()
    for version in range(10, 19):
        assert QueueDeleted().encode(version) == b"DELD"
        assert SMP.responses.decode(b"DELD", version) == QueueDeleted()


@pytest.mark.parametrize(
    ("response", "wire"),
    [
        (LinkContent(b"snd", LinkData(b"f", b"us")), b"LNK \x03snd\x00\x01f\x00\x02us"),
        (Subscribed(), b"SOK 0"),
        (ServiceSubscribed(2), bytes.fromhex("534f4b53200000000000000002")),
        (ServiceSubscriptionEnded(-1), b"ENDS " + b"\xff" * 8),
        (MessageReceived(b"id", b"body of any bytes"), b"MSG \x02idbody of any bytes"),
        (NotificationsEnabled(NotifierIds(b"ntf", B)), b"NID \x03ntf\x2c" + B.der),
        (NotificationReceived(N, bytes(144)), b"NMSG " + N + b"\x90" + bytes(144)),
        (
            ProxySession(b"sid", VersionRange(8, 17), CertificateChainKey((b"leaf", b"ca"), SIGNED)),
            b"PKEY \x03sid\x00\x08\x00\x11\x02\x00\x04leaf\x00\x02ca\x00\x7a" + SIGNED.der,
        ),
        (RelayAnswer(b"sealed"), b"RRES sealed"),
        (ForwardedAnswer(b""), b"PRES "),
        (QueueInspected(b"{}"), b"INFO {}"),
    ],
)
def test_responses_have_their_layouts(response: Response, wire: bytes) -> None:
    for version in range(16, 19):
        assert response.encode(version) == wire
        assert SMP.responses.decode(wire, version) == response
