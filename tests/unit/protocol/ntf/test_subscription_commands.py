from __future__ import annotations

import pytest
from hypothesis import given

from tests.strategies import notifier_queues
from tests.unit.protocol.ntf.appendix_a import NOTIFIER_ID, NOTIFIER_KEY, QUEUE, SMP_ROUTER, TOKEN_ID
from tocsin.errors import DecodeError
from tocsin.protocol.addresses import LEGACY_ONION_HOSTS, RouterLocation, Scheme
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.subscription_commands import (
    CheckSubscription,
    DeleteSubscription,
    NotifierQueue,
    SubscribeToQueue,
)
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

SNEW = SubscribeToQueue(TOKEN_ID, QUEUE, NOTIFIER_KEY)
SNEW_WIRE = (
    b"SNEW S\x18"
    + TOKEN_ID
    + b"\x01\x0fsmp.example.com\x045223\x20"
    + b"\x0c" * 32
    + b"\x18"
    + NOTIFIER_ID
    + b"\x30"
    + bytes.fromhex("302e020100300506032b657004220420")
    + b"\x0b" * 32
)


def test_a_subscription_is_that_of_the_appendix() -> None:
    assert len(SNEW_WIRE) == 160
    for version in (1, 2, 3):
        assert SNEW.encode(version) == SNEW_WIRE
        assert NTF.commands.decode(SNEW_WIRE, version) == SNEW
        for length in range(len(SNEW_WIRE)):
            with pytest.raises(DecodeError):
                NTF.commands.decode(SNEW_WIRE[:length], version)


@pytest.mark.parametrize(
    "wire",
    [
        SNEW_WIRE.replace(b"SNEW S", b"SNEW T"),
        SNEW_WIRE.replace(b"\x04\x22\x04\x20", b"\x04\x22\x04\x21"),
        SNEW_WIRE.replace(b"\x045223", b"\x0452 3"),
        SNEW_WIRE + b"x",
    ],
)
def test_malformed_subscriptions_are_refused(wire: bytes) -> None:
    assert wire != SNEW_WIRE
    with pytest.raises(DecodeError):
        NTF.commands.decode(wire, 3)


def test_a_queue_without_a_notifier_id_is_refused() -> None:
    """Its text could not be read by the device that gets it in a push."""
    wire = SNEW_WIRE.replace(b"\x18" + NOTIFIER_ID, b"\x00")
    with pytest.raises(DecodeError, match="empty id"):
        NTF.commands.decode(wire, 3)


def test_other_commands_are_bare_tags() -> None:
    assert NTF.commands.decode(b"SCHK", 3) == CheckSubscription()
    assert NTF.commands.decode(b"SDEL", 3) == DeleteSubscription()


@given(notifier_queues)
def test_queues_are_read_back_as_text_and_as_bytes(queue: NotifierQueue) -> None:
    assert NotifierQueue.parse(queue.text()) == queue
    out = WireWriter()
    queue.encode(out)
    assert NotifierQueue.decode(WireReader(out.done())) == queue


def test_the_text_of_a_queue_is_that_of_the_appendix() -> None:
    assert QUEUE.text() == (
        "smp://DAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAw=@smp.example.com:5223/CgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoK"
    )


def test_preset_routers_get_their_onion_host_in_both_forms() -> None:
    for host, onion in LEGACY_ONION_HOSTS.items():
        one = NotifierQueue(RouterLocation((host,), "", b"\x0c" * 32), NOTIFIER_ID)
        both = NotifierQueue(RouterLocation((host, onion), "", b"\x0c" * 32), NOTIFIER_ID)
        out = WireWriter()
        one.encode(out)
        assert NotifierQueue.decode(WireReader(out.done())) == both
        assert NotifierQueue.parse(one.text()) == both


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "notifier id is expected"),
        ("nothing", "notifier id is expected"),
        (SMP_ROUTER.text(Scheme.SMP), "not a router address"),
        (SMP_ROUTER.text(Scheme.SMP) + "/", "base64url"),
        (SMP_ROUTER.text(Scheme.SMP) + "/%", "base64url"),
        (SMP_ROUTER.text(Scheme.NTF) + "/AAAA", "smp address"),
    ],
)
def test_other_texts_are_no_queues(text: str, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        NotifierQueue.parse(text)


def test_notifier_id_and_key_are_not_shown() -> None:
    queue = NotifierQueue(SMP_ROUTER, b"n0tifier")
    shown = repr(SubscribeToQueue(TOKEN_ID, queue, NOTIFIER_KEY))
    assert "n0tifier" not in shown
    assert repr(NOTIFIER_KEY.raw)[2:-1] not in shown
