"""Tokens signed with RS256, by which a service account identifies itself to Google (RFC 7515, RFC 7518 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tocsin.crypto.es256 import signing_input, unpadded_base64url
from tocsin.errors import BadKey

MIN_KEY_BITS: Final = 2048


def rs256_key_from_pem(pem: bytes, name: str) -> rsa.RSAPrivateKey:
    """Load a key. Raises `BadKey` unless it is an unencrypted RSA key of at least 2048 bits, called `name`."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise BadKey(f"the {name} holds no unencrypted private key in PEM form") from error
    if not isinstance(key, rsa.RSAPrivateKey) or key.key_size < MIN_KEY_BITS:
        raise BadKey(f"the {name} must hold an RSA key of at least {MIN_KEY_BITS} bits, for RS256")
    return key


def rs256_token(key: rsa.RSAPrivateKey, header: Mapping[str, object], claims: Mapping[str, object]) -> bytes:
    """A JWT: header, claims and signature."""
    signed = signing_input(header, claims)
    signature = key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
    return signed + b"." + unpadded_base64url(signature)
