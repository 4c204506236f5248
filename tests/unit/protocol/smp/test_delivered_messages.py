"""Appendices A.7 and A.8 of smp.md."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.appendix_a import MID, TS, N, S, sha256
from tests.strategies import delivered, i64s, nonces, short_octets
from tocsin.crypto.boxes import box_key, seal
from tocsin.errors import BadBox, DecodeError, LocalProtocolError
from tocsin.protocol.smp.delivered_messages import (
    Delivered,
    DeliveredMessage,
    NotificationMeta,
    QuotaMarker,
    decode_delivered,
    seal_delivered,
    seal_meta,
    unseal_delivered,
    unseal_meta,
)
from tocsin.protocol.smp.responses import NotificationReceived
from tocsin.protocol.smp.sender_commands import HIGHEST_PRIORITY, MessageFlags
from tocsin.wire.padding import pad

KEY = box_key(S)
MESSAGE = DeliveredMessage(TS, MessageFlags(True), b"hello")


def test_a_message_is_that_of_appendix_a7() -> None:
    assert MESSAGE.encode().hex() == "000000006553f100542068656c6c6f"
    sealed = seal_delivered(KEY, MID, MESSAGE)
    assert len(sealed) == 16122
    assert sealed[:48].hex() == (
        "3477f3beaf8b6b43bafd001e31fe873c4eaf66b82d6ae604b24e4d5a33abafb2a3bf52d4b8f098ddbc9ccac4924b8820"
    )
    assert sha256(sealed) == "51adf3f2a89967d193de2bdce464beb26a41a6ac07f301df23fb0c5cdaf8b46b"
    assert unseal_delivered(KEY, MID, sealed) == MESSAGE


def test_a_quota_marker_is_that_of_appendix_a7() -> None:
    assert QuotaMarker(TS).encode().hex() == "51554f544120000000006553f100"
    sealed = seal_delivered(KEY, MID, QuotaMarker(TS))
    assert sha256(sealed) == "792a9630b6f6870ed5288c0b51c45402238de4f2fdd2a039a58d842752fa2767"
    assert unseal_delivered(KEY, MID, sealed) == QuotaMarker(TS)


def test_metadata_is_that_of_appendix_a8() -> None:
    meta = NotificationMeta(MID, TS)
    assert meta.encode().hex() == "18a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7000000006553f100"
    sealed = seal_meta(KEY, N, meta)
    assert sealed.hex() == (
        "0c10c82cd1d19c77d5ec84b42338959afe14b752cc7b026426e26160cb9874bc8f991776ac16ffe6fe1e8823c7b85d54afc09856"
        "0c354905ee86469b6c233585b842e7813d6419bb89eeb5c819a402aebc1d25848fc5371961f8d77be9e7b5f0e39e0aa27225ec75"
        "d3325fe8c8cb507dcd56acc1a9d953d728852f2a12e34660739c3052dae27b23c36f4d809cd4edf6"
    )
    assert NotificationReceived(N, sealed).encode(18) == b"NMSG " + N + b"\x90" + sealed
    assert unseal_meta(KEY, N, sealed) == meta


def test_a_mention_adds_one_byte_that_others_ignore() -> None:
    ordinary = NotificationMeta(MID, TS)
    assert [NotificationMeta(MID, TS, priority).encode() for priority in range(4)] == [
        ordinary.encode(),
        ordinary.encode(),
        ordinary.encode() + b"2",
        ordinary.encode() + b"3",
    ]
    assert [each.is_mention for each in (ordinary, replace(ordinary, priority=2))] == [False, True]


@given(delivered)
def test_every_message_is_read_back(message: Delivered) -> None:
    assert decode_delivered(message.encode()) == message


@given(short_octets, i64s, st.integers(1, HIGHEST_PRIORITY), st.binary(max_size=10), nonces)
def test_metadata_is_read_back_and_its_end_ignored(
    message_id: bytes, sent_at: int, priority: int, future: bytes, nonce: bytes
) -> None:
    meta = NotificationMeta(message_id, sent_at, priority)
    unknown = future if priority > 1 or not future.startswith((b"2", b"3")) else b""
    assert NotificationMeta.decode(meta.encode() + unknown) == meta
    if len(meta.encode()) <= 126:
        assert unseal_meta(KEY, nonce, seal_meta(KEY, nonce, meta)) == meta


@given(st.binary(max_size=40))
def test_any_bytes_are_a_message_or_refused(plain: bytes) -> None:
    for decode in (decode_delivered, NotificationMeta.decode):
        try:
            decode(plain)
        except DecodeError:
            continue


@pytest.mark.parametrize(
    "plain",
    [b"", b"QUOTA ", b"QUOTA 1234567", b"QUOTA 123456789", bytes(8), bytes(8) + b"T", bytes(8) + b"X "],
)
def test_other_texts_are_refused(plain: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_delivered(plain)


def test_a_message_for_another_is_refused() -> None:
    sealed = seal_delivered(KEY, MID, MESSAGE)
    with pytest.raises(BadBox):
        unseal_delivered(KEY, N, sealed)
    with pytest.raises(BadBox):
        unseal_delivered(box_key(bytes(32)), MID, sealed)
    with pytest.raises(BadBox):
        unseal_meta(KEY, N, sealed)
    with pytest.raises(DecodeError):
        unseal_delivered(KEY, MID, seal(KEY, MID, pad(b"", 16106)))


def test_the_longest_message_of_version_6_fits() -> None:
    longest = DeliveredMessage(TS, MessageFlags(True, b"123456"), bytes(16088))
    assert len(seal_delivered(KEY, MID, longest)) == 16122
    with pytest.raises(LocalProtocolError):
        seal_delivered(KEY, MID, DeliveredMessage(TS, MessageFlags(True, b"1234567"), bytes(16088)))


def test_the_body_is_not_shown() -> None:
    assert "hello" not in repr(MESSAGE)
