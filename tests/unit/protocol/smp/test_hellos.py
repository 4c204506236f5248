from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.appendix_a import KEY_HASH, SID, E, X
from tests.strategies import client_hellos, router_hellos, short_ids
from tocsin.crypto.signed_keys import SignedKey
from tocsin.errors import DecodeError
from tocsin.protocol.certificate_keys import CertificateChainKey
from tocsin.protocol.error_codes import TransportFault
from tocsin.protocol.smp.hellos import (
    ClientHello,
    RouterHello,
    ServiceAccepted,
    ServiceRejected,
    decode_service_answer,
)
from tocsin.wire.versions import VersionRange


def test_the_client_hello_is_that_of_appendix_a6() -> None:
    hello = ClientHello(18, KEY_HASH, X.public)
    wire = bytes.fromhex("001220") + KEY_HASH + b"\x2c" + X.public.der + b"F0"
    assert len(wire) == 82
    assert hello.encode() == wire
    assert ClientHello.decode(wire) == hello


def test_the_router_hello_is_that_of_appendix_a6() -> None:
    key = CertificateChainKey((b"LEAFDER", b"CADER"), SignedKey.sign(X.public, E))
    wire = RouterHello(VersionRange(6, 18), SID, key).encode()
    assert len(wire) == 178
    start = (
        bytes.fromhex("0006001220") + SID + bytes.fromhex("0200074c45414644455200054341444552007a3078302c")
    )
    assert wire.startswith(start)


@given(router_hellos(), st.binary(max_size=5))
def test_every_router_hello_is_read_back(hello: RouterHello, future: bytes) -> None:
    assert RouterHello.decode(hello.encode() + future) == hello


@pytest.mark.parametrize("version", range(6, 19))
@settings(max_examples=15)
@given(data=st.data())
def test_every_client_hello_is_read_back(version: int, data: st.DataObject) -> None:
    hello = data.draw(client_hellos(version))
    assert ClientHello.decode(hello.encode()) == hello


@given(st.binary(max_size=120))
def test_any_bytes_are_a_hello_or_refused(content: bytes) -> None:
    for decode in (RouterHello.decode, ClientHello.decode, decode_service_answer):
        try:
            decode(content)
        except DecodeError:
            continue


@given(short_ids)
def test_an_accepted_service_learns_its_id(service_id: bytes) -> None:
    answer = ServiceAccepted(service_id)
    assert answer.encode()[:1] == b"R"
    assert decode_service_answer(answer.encode()) == answer


@pytest.mark.parametrize("fault", list(TransportFault))
def test_a_rejected_service_learns_why(fault: TransportFault) -> None:
    answer = ServiceRejected(fault)
    assert answer.encode() == b"E" + fault.value.encode()
    assert decode_service_answer(answer.encode()) == answer


def test_an_empty_service_id_is_refused() -> None:
    """A store could not read it back."""
    with pytest.raises(DecodeError, match="empty id"):
        decode_service_answer(ServiceAccepted(b"").encode())
