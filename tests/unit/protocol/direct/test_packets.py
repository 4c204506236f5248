"""What a device says to its NTF router through an SMP router that must learn and change nothing."""

from __future__ import annotations

import nacl.bindings as sodium
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.protocol.direct.samples import (
    EPHEMERAL,
    KEYS,
    NTF_IDENTITY,
    NTF_KEY,
    OFFER,
    QUEUE,
    SMP_LOCATION,
    TOKEN_ID,
    TOKEN_KEY,
    sealed,
)
from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey
from tocsin.errors import DecodeError, LocalProtocolError
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.packets import (
    PACKET_BYTES,
    PacketFate,
    PacketKind,
    Statement,
    UnknownNtfKey,
    open_packet,
    seal_packet,
)
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.wire.padding import unpad
from tocsin.wire.writer import WireWriter


@pytest.mark.parametrize("kind", PacketKind)
def test_a_packet_says_what_was_sealed_and_who_signed_it(kind: PacketKind) -> None:
    opened = open_packet(sealed(kind), KEYS)
    assert opened.statement == Statement(kind, TOKEN_ID, QUEUE)
    assert opened.signed_by(TOKEN_KEY.public, NTF_IDENTITY)


def test_a_signature_is_for_one_key_and_one_ntf_router() -> None:
    opened = open_packet(sealed(), KEYS)
    assert not opened.signed_by(Ed25519PrivateKey(b"\x12" * 32).public, NTF_IDENTITY)
    assert not opened.signed_by(TOKEN_KEY.public, bytes(32))


def test_libsodium_alone_opens_it() -> None:
    """Others can implement it with `crypto_box_seal`."""
    packet = sealed()
    padded = sodium.crypto_box_seal_open(packet[8:], NTF_KEY.public.raw, NTF_KEY.raw)
    assert unpad(padded)[64:] == Statement(PacketKind.ASSOCIATE, TOKEN_ID, QUEUE).encode()


def test_what_libsodium_seals_is_opened() -> None:
    padded = sodium.crypto_box_seal_open(sealed()[8:], NTF_KEY.public.raw, NTF_KEY.raw)
    again = OFFER.key_id + sodium.crypto_box_seal(padded, NTF_KEY.public.raw)
    assert open_packet(again, KEYS).signed_by(TOKEN_KEY.public, NTF_IDENTITY)


@pytest.mark.parametrize(
    "hosts", [("a.b",), ("smp.example.com", "b" * 56 + ".onion"), ("x" * 60 + ".example",)]
)
def test_all_packets_have_one_size(hosts: tuple[str, ...]) -> None:
    location = RouterLocation(hosts, "5223", bytes(32))
    assert len(sealed(queue=NotifierQueue(location, bytes(24)))) == PACKET_BYTES


def test_an_smp_router_has_at_most_275_bytes() -> None:
    """As the document says: with a port of four digits its hosts have 236, with their length bytes."""
    fits = RouterLocation(("a" * 117, "b" * 117), "5223", bytes(32))
    fits.encode(out := WireWriter())
    assert len(out.done()) == 275
    assert len(sealed(queue=NotifierQueue(fits, bytes(24)))) == PACKET_BYTES
    with pytest.raises(LocalProtocolError, match="do not fit"):
        sealed(queue=NotifierQueue(RouterLocation(("a" * 117, "b" * 118), "5223", bytes(32)), bytes(24)))


def test_the_same_words_look_different_each_time() -> None:
    statement = Statement(PacketKind.ASSOCIATE, TOKEN_ID, QUEUE)
    other = seal_packet(
        statement,
        ntf_identity=NTF_IDENTITY,
        token_key=TOKEN_KEY,
        offer=OFFER,
        ephemeral=X25519PrivateKey(b"\x34" * 32),
    )
    assert other[:8] == sealed()[:8]
    assert other[8:] != sealed()[8:]


def test_a_key_that_is_erased_is_told_from_a_broken_packet() -> None:
    with pytest.raises(UnknownNtfKey):
        open_packet(sealed(), {})
    with pytest.raises(DecodeError) as broken:
        open_packet(sealed()[:-1] + b"!", KEYS)
    assert not isinstance(broken.value, UnknownNtfKey)


@given(place=st.integers(8, PACKET_BYTES - 1), bit=st.integers(0, 7))
def test_whatever_bit_is_changed_it_does_not_open(place: int, bit: int) -> None:
    packet = bytearray(sealed())
    packet[place] ^= 1 << bit
    # The highest bit of an X25519 key is not part of it: the nonce still is.
    with pytest.raises(DecodeError):
        open_packet(bytes(packet), KEYS)


@pytest.mark.parametrize("wrong", [b"", b"x" * (PACKET_BYTES - 1), b"x" * (PACKET_BYTES + 1)])
def test_another_size_is_refused(wrong: bytes) -> None:
    with pytest.raises(DecodeError, match="448"):
        open_packet(wrong, KEYS)


def test_a_low_order_key_is_refused() -> None:
    packet = OFFER.key_id + bytes(32) + sealed()[40:]
    with pytest.raises(DecodeError):
        open_packet(packet, KEYS)


def test_ids_are_not_shown() -> None:
    opened = open_packet(sealed(), KEYS)
    for secret in (TOKEN_ID, QUEUE.notifier_id, EPHEMERAL.raw):
        assert repr(secret) not in repr(opened)
        assert secret.decode(errors="replace") not in repr(opened.statement)
    assert SMP_LOCATION.hosts[0] in repr(opened.statement)


def test_only_pending_is_not_the_end() -> None:
    assert {fate for fate in PacketFate if not fate.final} == {PacketFate.PENDING}


@pytest.mark.parametrize("length", [1, 23, 25, 255])
@pytest.mark.parametrize("kind", PacketKind)
def test_a_notifier_id_of_another_length_is_refused(kind: PacketKind, length: int) -> None:
    """A store could not read it back."""
    queue = NotifierQueue(RouterLocation(("smp.example.com",), "", bytes(32)), b"n" * length)
    with pytest.raises(DecodeError, match="24 bytes"):
        Statement.decode(Statement(kind, b"t" * 24, queue).encode())
