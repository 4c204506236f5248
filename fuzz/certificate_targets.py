"""Certificate chains, signed keys and DER keys."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from fuzz import fixed_parties as fixed
from fuzz.contract import attempt, choose, demand, demand_equal
from tocsin.crypto.certificate_chains import (
    FingerprintMismatch,
    certificate_public_key,
    validate_client_chain,
    validate_server_chain,
)
from tocsin.crypto.keys import (
    AuthPrivateKey,
    Ed448PublicKey,
    Ed25519PrivateKey,
    Ed25519PublicKey,
    PublicKey,
    private_key_from_der,
    public_key_from_der,
)
from tocsin.crypto.signed_keys import SignedKey
from tocsin.errors import BadCertificateChain, BadKey, DecodeError
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

ISSUER_KEYS: Final = (fixed.AUTHORITY_KEY, fixed.OPERATOR_KEY, fixed.OPERATOR_KEY, fixed.OPERATOR_KEY)
"""Who signs the certificate at each place of a chain of three; a single one is the service's own."""
_ED25519_ALGORITHM: Final = bytes.fromhex("300506032b6570")


def chain_bytes(chain: tuple[bytes, ...]) -> bytes:
    """A chain as an input: the list of the hellos."""
    out = WireWriter()
    return out.non_empty_list(chain, out.large_bytes).done()


def _chain(data: bytes) -> tuple[bytes, ...]:
    body = WireReader(data)
    return attempt(lambda: body.non_empty_list(body.large_bytes), DecodeError) or (data,)


def _server_chain(data: bytes) -> None:
    chain = _chain(data)
    own = hashlib.sha256(chain[1] if len(chain) > 1 else b"").digest()
    key = attempt(lambda: validate_server_chain(chain, own, fixed.NOW), BadCertificateChain)
    _signing_key(key)
    if len(chain) > 1:
        _another_identity(chain, own[::-1])


def _another_identity(chain: tuple[bytes, ...], key_hash: bytes) -> None:
    try:
        validate_server_chain(chain, key_hash, fixed.NOW)
    except FingerprintMismatch as refusal:
        demand_equal(refusal.expected, key_hash, "a mismatch names the identity expected")
    except BadCertificateChain:
        return
    else:
        raise AssertionError("broken promise: a chain with another identity is refused")


def _client_chain(data: bytes) -> None:
    chain = _chain(data)
    proven = attempt(lambda: validate_client_chain(chain, fixed.NOW), BadCertificateChain)
    if proven is not None:
        identity = chain[min(1, len(chain) - 1)]
        demand_equal(proven[0], hashlib.sha256(identity).digest(), "the fingerprint is the identity's")
        _signing_key(proven[1])


def _signed_chain(data: bytes) -> None:
    """As a server's and a client's chain, of certificates that are properly signed whatever they say."""
    parts = _chain(data)
    keys = ISSUER_KEYS if len(parts) > 1 else (fixed.SERVICE_KEY,)
    signed = [_certificate(part, key) for part, key in zip(parts, keys, strict=False)]
    chain = chain_bytes(tuple(signed))
    _server_chain(chain)
    _client_chain(chain)


def _certificate(to_be_signed: bytes, signer: Ed25519PrivateKey) -> bytes:
    return _element(
        0x30, to_be_signed + _ED25519_ALGORITHM + _element(0x03, b"\0" + signer.sign(to_be_signed))
    )


def _element(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def _one_certificate(data: bytes) -> None:
    _signing_key(attempt(lambda: certificate_public_key(data), BadCertificateChain))


def _signing_key(der: bytes | None) -> None:
    if der is not None:
        key = public_key_from_der(der)
        demand(isinstance(key, Ed25519PublicKey | Ed448PublicKey), "a certificate's key signs")


CHAINS: Final[tuple[Callable[[bytes], None], ...]] = (
    _server_chain,
    _client_chain,
    _signed_chain,
    _one_certificate,
)


def certificate_chain(data: bytes) -> None:
    """The chains of routers and services."""
    check, data = choose(data, CHAINS)
    check(data)


def _signed_key(data: bytes) -> None:
    signed = attempt(lambda: SignedKey.from_der(data), BadKey)
    if signed is not None:
        demand_equal(signed.der, data, "a signed key has one form")
        genuine = signed.signed_by(fixed.LEAF_KEY.public)
        demand(not signed.signed_by(fixed.ENTITY_KEY.public), "nobody else signed it")
        demand(not genuine or signed == SignedKey.sign(signed.key, fixed.LEAF_KEY), "Ed25519 has one result")


def _public_key(data: bytes) -> None:
    key: PublicKey | None = attempt(lambda: public_key_from_der(data), BadKey)
    if key is None:
        return
    demand_equal(key.der, data, "a public key has one form")
    if isinstance(key, Ed25519PublicKey | Ed448PublicKey):
        demand(not key.verifies(data[:64].ljust(64, b"\0"), data), "a signature that nobody made is refused")
        demand(not key.verifies(data[:57].ljust(114, b"\1"), data), "a signature that nobody made is refused")


def _private_key(data: bytes) -> None:
    key: AuthPrivateKey | None = attempt(lambda: private_key_from_der(data), BadKey)
    if key is not None:
        demand_equal(key.der, data, "a private key has one form")
        demand(key.raw.hex() not in repr(key), "a private key is not shown")


KEYS: Final[tuple[Callable[[bytes], None], ...]] = (_signed_key, _public_key, _private_key)


def key(data: bytes) -> None:
    """Signed session keys and the DER forms of keys."""
    check, data = choose(data, KEYS)
    check(data)
