"""Tokens signed with RS256. `tests/unit/push/fcm` verifies a whole one."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tocsin.crypto.rs256 import rs256_key_from_pem, rs256_token
from tocsin.errors import BadKey
from tocsin.wire.base64url import decode_base64url


def test_a_token_is_verified_by_the_public_key() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    token = rs256_token(rs256_key_from_pem(pem, "file"), {"alg": "RS256"}, {"iss": "me"})
    signed, _, signature = token.rpartition(b".")
    assert signed == b"eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJtZSJ9"
    raw = decode_base64url(signature.decode() + "=" * (-len(signature) % 4))
    key.public_key().verify(raw, signed, padding.PKCS1v15(), hashes.SHA256())


def test_the_error_names_the_file() -> None:
    with pytest.raises(BadKey, match="the key file holds no unencrypted private key"):
        rs256_key_from_pem(b"nothing", "key file")
