from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import short_octets, tails
from tocsin.errors import DecodeError, LocalProtocolError
from tocsin.wire.transmissions import (
    RawTransmission,
    TransmissionLayout,
    join_transmission,
    signed_tail,
    split_transmission,
)

SERVICES = TransmissionLayout(session_id=False, service_signature=True)
IMPLIED = TransmissionLayout(session_id=False, service_signature=False)
OLD = TransmissionLayout(session_id=True, service_signature=False)

layouts = st.sampled_from((SERVICES, IMPLIED, OLD))
auths = st.sampled_from((b"", bytes(64), bytes(80), bytes(114), b"odd"))
service_signatures = st.sampled_from((b"", bytes(64)))


@given(layouts, auths, service_signatures, short_octets, short_octets, short_octets, tails)
def test_a_transmission_is_taken_apart_into_what_it_was_made_of(
    layout: TransmissionLayout,
    auth: bytes,
    service_signature: bytes,
    session_id: bytes,
    corr_id: bytes,
    entity_id: bytes,
    command: bytes,
) -> None:
    tail = signed_tail(layout, session_id, corr_id, entity_id, command)
    signed_twice = layout.service_signature and auth
    assert split_transmission(
        join_transmission(layout, auth, service_signature, tail), layout
    ) == RawTransmission(
        auth,
        service_signature if signed_twice else b"",
        session_id if layout.session_id else b"",
        corr_id,
        entity_id,
        command,
        tail,
    )


@given(layouts, st.binary(max_size=200))
def test_any_bytes_are_a_transmission_or_refused(layout: TransmissionLayout, data: bytes) -> None:
    try:
        raw = split_transmission(data, layout)
    except DecodeError:
        return
    assert join_transmission(layout, raw.auth, raw.service_signature, raw.signed_tail) == data


@pytest.mark.parametrize("layout", [SERVICES, IMPLIED, OLD])
def test_every_truncation_before_the_command_is_refused(layout: TransmissionLayout) -> None:
    tail = signed_tail(layout, b"session", b"corr", b"entity", b"")
    whole = join_transmission(layout, bytes(64), bytes(64), tail)
    assert split_transmission(whole, layout).command == b""
    for length in range(len(whole)):
        with pytest.raises(DecodeError):
            split_transmission(whole[:length], layout)


def test_no_service_field_follows_an_empty_authorization() -> None:
    """A transmission without authorization begins 00 18 in all versions from 7."""
    tail = signed_tail(SERVICES, b"", bytes(24), b"", b"PING")
    assert join_transmission(SERVICES, b"", b"", tail) == b"\x00\x18" + bytes(24) + b"\x00PING"


@pytest.mark.parametrize("length", [0, 63, 65, 114])
def test_a_service_signature_has_64_bytes(length: int) -> None:
    data = b"\x40" + bytes(64) + b"1" + bytes((length,)) + bytes(length) + b"\x00\x00PING"
    with pytest.raises(DecodeError, match="service signature"):
        split_transmission(data, SERVICES)


def test_the_service_field_is_a_maybe() -> None:
    with pytest.raises(DecodeError, match="service signature"):
        split_transmission(b"\x40" + bytes(64) + b"\x00\x00\x00PING", SERVICES)


@pytest.mark.parametrize("layout", [IMPLIED, OLD])
def test_an_identifier_of_256_bytes_cannot_be_sent(layout: TransmissionLayout) -> None:
    with pytest.raises(LocalProtocolError):
        signed_tail(layout, b"", bytes(256), b"", b"PING")


def test_the_command_is_not_shown() -> None:
    tail = signed_tail(IMPLIED, b"", b"", b"", b"NEW secret")
    assert "secret" not in repr(split_transmission(b"\x00" + tail, IMPLIED))
