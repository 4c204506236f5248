"""Signed tokens (JWT, RFC 7515), by which a router identifies itself to a push provider.

Apple and Web Push services (RFC 8292) take ES256; Google takes RS256 for service accounts (RFC 7518, 3.3). A signature
of ES256 has the form that JOSE prescribes (RFC 7518, 3.4): two numbers of 32 bytes, not DER.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Final

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tocsin.errors import BadKey

_NUMBER_BYTES: Final = 32
_MIN_RSA_BITS: Final = 2048


def es256_key_from_pem(pem: bytes, name: str) -> ec.EllipticCurvePrivateKey:
    """Load a key. Raises `BadKey` unless it is an unencrypted P-256 key; the error calls it `name`."""
    key = _private_key(pem, f"{name} key file")
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise BadKey(f"the {name} key must be one for ES256, on the curve P-256")
    return key


def rs256_key_from_pem(pem: bytes, name: str) -> rsa.RSAPrivateKey:
    """Load a key. Raises `BadKey` unless it is an unencrypted RSA key of at least 2048 bits, called `name`."""
    key = _private_key(pem, name)
    if not isinstance(key, rsa.RSAPrivateKey) or key.key_size < _MIN_RSA_BITS:
        raise BadKey(f"the {name} must hold an RSA key of at least {_MIN_RSA_BITS} bits, for RS256")
    return key


def _private_key(pem: bytes, name: str) -> PrivateKeyTypes:
    try:
        return serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise BadKey(f"the {name} holds no unencrypted private key in PEM form") from error


def signed_token(
    key: ec.EllipticCurvePrivateKey, header: Mapping[str, object], claims: Mapping[str, object]
) -> bytes:
    """A JWT: header, claims and signature."""
    signed = signing_input(header, claims)
    r, s = decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA256())))
    signature = r.to_bytes(_NUMBER_BYTES, "big") + s.to_bytes(_NUMBER_BYTES, "big")
    return signed + b"." + unpadded_base64url(signature)


def rs256_token(key: rsa.RSAPrivateKey, header: Mapping[str, object], claims: Mapping[str, object]) -> bytes:
    """A JWT: header, claims and signature."""
    signed = signing_input(header, claims)
    signature = key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
    return signed + b"." + unpadded_base64url(signature)


def signing_input(header: Mapping[str, object], claims: Mapping[str, object]) -> bytes:
    """The part of a JWT that is signed (RFC 7515, 5.1)."""
    return b".".join(unpadded_base64url(_json(part)) for part in (header, claims))


def unpadded_base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
