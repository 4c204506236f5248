"""The key file of a service account."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from tocsin.errors import BadKey
from tocsin.push.fcm.service_account import ServiceAccount

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(key: Any) -> str:
    text: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return text.decode()


FILE: dict[str, object] = {
    "type": "service_account",
    "project_id": "my-project-1",
    "private_key_id": "0123abcd",
    "private_key": pem(KEY),
    "client_email": "push@my-project-1.iam.gserviceaccount.com",
    "client_id": "1",
    "token_uri": "https://oauth2.googleapis.com/token",
}


def read(**changes: object) -> ServiceAccount:
    return ServiceAccount.from_json(json.dumps({**FILE, **changes}).encode())


def test_a_request_for_a_token_is_signed() -> None:
    account = read()
    assert (account.project, account.token_host()) == (
        "my-project-1",
        ("oauth2.googleapis.com", 443, "/token"),
    )
    form = parse_qs(account.request_body(1_700_000_000).decode(), strict_parsing=True)
    assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    header, claims, signature = form["assertion"][0].split(".")
    assert json.loads(urlsafe_b64decode(header + "==")) == {"alg": "RS256", "typ": "JWT", "kid": "0123abcd"}
    assert json.loads(urlsafe_b64decode(claims + "==")) == {
        "iss": "push@my-project-1.iam.gserviceaccount.com",
        "scope": "https://www.googleapis.com/auth/firebase.messaging",
        "aud": "https://oauth2.googleapis.com/token",
        "iat": 1_700_000_000,
        "exp": 1_700_003_600,
    }
    signed = f"{header}.{claims}".encode()
    KEY.public_key().verify(urlsafe_b64decode(signature + "=="), signed, padding.PKCS1v15(), hashes.SHA256())


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "authorized_user"},
        {"project_id": None},
        {"project_id": "../other"},
        {"client_email": ""},
        {"private_key_id": 7},
        {"private_key": "none"},
        {"private_key": None},
        pytest.param(
            {"private_key": pem(ec.generate_private_key(ec.SECP256R1()))}, id="a key of another kind"
        ),
        pytest.param(
            {"private_key": pem(rsa.generate_private_key(public_exponent=65537, key_size=1024))},  # noqa: S505 - that is the point
            id="a short key",
        ),
        {"token_uri": "http://oauth2.googleapis.com/token"},
        {"token_uri": "https://user@oauth2.googleapis.com/token"},
        {"token_uri": "https://oauth2.googleapis.com:port/token"},
        {"token_uri": "https:///token"},
        {"token_uri": "https://a/token?x=1"},
    ],
    ids=lambda changes: str(changes)[:60],
)
def test_other_files_are_refused_without_their_secret(changes: dict[str, object]) -> None:
    with pytest.raises(BadKey) as refusal:
        read(**changes)
    assert "BEGIN" not in str(refusal.value)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000], ids=lambda text: repr(text[:9])
)
def test_what_is_no_key_file_is_refused(text: bytes) -> None:
    with pytest.raises(BadKey):
        ServiceAccount.from_json(text)


def test_the_key_is_not_shown() -> None:
    assert "RSA" not in repr(read())
