"""Counts and hashes of service subscriptions (v7.md 2)."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import DecodeError
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.smp.dialect import SMP_COMMANDS, SMP_RESPONSES
from tocsin.protocol.smp.notifier_commands import SubscribeServiceNotifications
from tocsin.protocol.smp.recipient_commands import SubscribeService
from tocsin.protocol.smp.responses import AllDelivered, ServiceSubscribed, ServiceSubscriptionEnded
from tocsin.protocol.smp.service_subscriptions import NO_IDS_HASH, id_hash, ids_hash_bytes

HASH = bytes(range(16))


def test_the_hash_of_three_ids_is_that_of_the_specification() -> None:
    ids = [bytes([number]) * 24 for number in (1, 2, 3)]
    combined = reduce(lambda so_far, each: so_far ^ id_hash(each), ids, 0)
    assert ids_hash_bytes(combined).hex() == "679f48b258aafe24d48c5c590c33fd09"
    assert ids_hash_bytes(0) == NO_IDS_HASH


THREE = bytes.fromhex("679f48b258aafe24d48c5c590c33fd09")
TWO = bytes.fromhex("340ff55eba8f4dafe489c000970cb6c9")


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (SubscribeServiceNotifications(3, THREE), "4e5355425320 0000000000000003 10" + THREE.hex()),
        (SubscribeService(0, NO_IDS_HASH), "5355425320 0000000000000000 10" + "00" * 16),
        (ServiceSubscribed(2, TWO), "534f4b5320 0000000000000002 10" + TWO.hex()),
        (ServiceSubscriptionEnded(3, THREE), "454e445320 0000000000000003 10" + THREE.hex()),
        (AllDelivered(), "414c4c53"),
    ],
)
def test_vectors_of_the_specification(message: Command | Response, wire: str) -> None:
    """v7.md Appendix A"""
    assert message.encode(19) == message.encode(20) == bytes.fromhex(wire)


@pytest.mark.parametrize("kind", [SubscribeService, SubscribeServiceNotifications])
def test_from_version_19_on_the_client_says_what_it_expects(
    kind: type[SubscribeService] | type[SubscribeServiceNotifications],
) -> None:
    command = kind(3, HASH)
    wire = kind.tag + b" " + (3).to_bytes(8, "big") + b"\x10" + HASH
    assert command.encode(19) == wire
    assert SMP_COMMANDS.decode(wire, 19) == command
    assert command.encode(18) == kind.tag
    assert SMP_COMMANDS.decode(kind.tag, 18) == kind()


@pytest.mark.parametrize("kind", [ServiceSubscribed, ServiceSubscriptionEnded])
def test_from_version_19_on_the_router_says_what_it_has(
    kind: type[ServiceSubscribed] | type[ServiceSubscriptionEnded],
) -> None:
    response = kind(3, HASH)
    before = kind.tag + b" " + (3).to_bytes(8, "big")
    assert response.encode(18) == before
    assert SMP_RESPONSES.decode(before, 18) == kind(3)
    assert response.encode(19) == before + b"\x10" + HASH
    assert SMP_RESPONSES.decode(before + b"\x10" + HASH, 19) == response


@pytest.mark.parametrize("wire", [b"NSUBS ", b"NSUBS " + bytes(8) + b"\x10" + HASH, b"SUBS x"])
def test_before_version_19_there_are_no_parameters(wire: bytes) -> None:
    with pytest.raises(DecodeError, match="no parameters"):
        SMP_COMMANDS.decode(wire, 18)


@pytest.mark.parametrize("wire", [b"NSUBS", b"SUBS"])
def test_from_version_19_on_the_parameters_are_needed(wire: bytes) -> None:
    with pytest.raises(DecodeError, match="wrong parameters"):
        SMP_COMMANDS.decode(wire, 19)


@pytest.mark.parametrize("size", [0, 15, 17])
def test_a_hash_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(DecodeError, match="16 bytes"):
        SMP_RESPONSES.decode(b"SOKS " + bytes(8) + bytes([size]) + bytes(size), 19)


@given(st.integers(-(2**63), 2**63 - 1), st.binary(min_size=16, max_size=16))
def test_version_19_messages_are_read_back(count: int, ids_hash: bytes) -> None:
    for command in (SubscribeService(count, ids_hash), SubscribeServiceNotifications(count, ids_hash)):
        read: Command = SMP_COMMANDS.decode(command.encode(19), 19)
        assert read == command
    for response in (ServiceSubscribed(count, ids_hash), ServiceSubscriptionEnded(count, ids_hash)):
        answer: Response = SMP_RESPONSES.decode(response.encode(19), 19)
        assert answer == response
