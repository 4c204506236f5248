from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import chain_keys
from tocsin.errors import DecodeError
from tocsin.protocol.certificate_keys import CertificateChainKey, decode_signed_key
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter


@given(chain_keys)
def test_certificates_and_key_are_read_back(key: CertificateChainKey) -> None:
    out = WireWriter()
    key.encode(out)
    assert CertificateChainKey.decode(WireReader(out.done())) == key


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    for decode in (CertificateChainKey.decode, decode_signed_key):
        with pytest.raises(DecodeError):
            decode(WireReader(data))


def test_a_chain_without_certificates_is_refused() -> None:
    with pytest.raises(DecodeError, match="empty list"):
        CertificateChainKey.decode(WireReader(b"\x00\x00\x00"))
