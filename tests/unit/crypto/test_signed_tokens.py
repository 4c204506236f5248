from __future__ import annotations

import base64
import json

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from tocsin.crypto.signed_tokens import es256_key_from_pem, rs256_key_from_pem, rs256_token, signed_token
from tocsin.errors import BadKey
from tocsin.wire.base64url import decode_base64url

KEY = ec.derive_private_key(7, ec.SECP256R1())


def pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey, password: bytes | None = None) -> bytes:
    encryption = (
        serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    )
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def decoded(part: bytes) -> bytes:
    return base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))


def verify(token: bytes, key: ec.EllipticCurvePublicKey) -> dict[str, object]:
    """The claims; raises InvalidSignature."""
    signed, _, signature = token.rpartition(b".")
    raw = decoded(signature)
    assert len(raw) == 64
    der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    key.verify(der, signed, ec.ECDSA(hashes.SHA256()))
    claims: dict[str, object] = json.loads(decoded(signed.split(b".")[1]))
    return claims


def test_tokens_are_signed_in_the_form_of_jose() -> None:
    for number in range(20):  # among them numbers that DER would write in fewer bytes
        token = signed_token(KEY, {"alg": "ES256"}, {"exp": number})
        assert b"=" not in token
        assert decoded(token.split(b".")[0]) == b'{"alg":"ES256"}'
        assert verify(token, KEY.public_key()) == {"exp": number}
    with pytest.raises(InvalidSignature):
        verify(token, ec.derive_private_key(8, ec.SECP256R1()).public_key())


def test_key_files_are_read_and_others_refused_by_their_name() -> None:
    assert es256_key_from_pem(pem(KEY), "ES256").private_numbers() == KEY.private_numbers()
    for file in (b"", b"not a key", pem(KEY, b"password")):
        with pytest.raises(BadKey, match="the Apple key file holds no unencrypted private key"):
            es256_key_from_pem(file, "Apple")
    for other in (ed25519.Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP384R1())):
        with pytest.raises(BadKey, match="the VAPID key must be one for ES256"):
            es256_key_from_pem(pem(other), "VAPID")


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
