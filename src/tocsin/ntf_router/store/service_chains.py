"""Certificates of our services at SMP routers, as stores keep them."""

from __future__ import annotations

from tocsin.crypto.credentials import Credentials
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter


def encode_chain(credentials: Credentials) -> bytes:
    """Return the certificates as 7.0 stores them: a list of DER with 16-bit lengths (v7.md 6.4)."""
    out = WireWriter()
    return out.non_empty_list(credentials.chain, out.large_bytes).done()


def decode_chain(chain: bytes, private_key: bytes) -> Credentials:
    """Raises DecodeError."""
    body = WireReader(chain)
    certificates = body.non_empty_list(body.large_bytes)
    body.expect_end()
    return Credentials(certificates, private_key)
