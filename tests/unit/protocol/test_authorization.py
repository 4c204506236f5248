from __future__ import annotations

import pytest

from tests.appendix_a import CORR, E448, A, B, E, V, X, a, b
from tocsin.crypto.boxes import box_key
from tocsin.crypto.keys import (
    AuthPrivateKey,
    AuthPublicKey,
    Ed448PublicKey,
    Ed25519PublicKey,
    X25519PrivateKey,
    X25519PublicKey,
)
from tocsin.errors import LocalProtocolError
from tocsin.protocol import authorization
from tocsin.protocol.authorization import AgreedKeys, AuthorizationCheck, Authorizer

TEXT = b"what is authorized"


@pytest.mark.parametrize("key", [E, E448, X], ids=["ed25519", "ed448", "x25519"])
def test_an_authorization_is_accepted_for_its_key_and_text_only(key: AuthPrivateKey) -> None:
    client, router = Authorizer(B), AuthorizationCheck(b)
    for _ in range(2):  # the second time the agreed key is remembered
        auth = client.authorize(key, CORR, TEXT)
        assert router.verifies(key.public, auth, CORR, TEXT)
        assert not router.verifies(key.public, auth, CORR, TEXT + b"x")
        assert not router.verifies(key.public, auth[:-1], CORR, TEXT)
        assert not router.verifies(key.public, b"", CORR, TEXT)
        for other in (V, E448, a):
            if other is not key:
                assert not router.verifies(other.public, auth, CORR, TEXT)


def test_an_authenticator_is_for_one_session_and_one_correlation_id() -> None:
    auth = Authorizer(B).authorize(X, CORR, TEXT)
    assert not AuthorizationCheck(a).verifies(X.public, auth, CORR, TEXT)
    assert not AuthorizationCheck(b).verifies(X.public, auth, CORR[::-1], TEXT)


def test_without_a_session_key_there_are_no_authenticators() -> None:
    with pytest.raises(LocalProtocolError, match="no session key"):
        Authorizer(None).authorize(X, CORR, TEXT)
    auth = Authorizer(B).authorize(X, CORR, TEXT)
    assert not AuthorizationCheck(None).verifies(X.public, auth, CORR, TEXT)
    assert AuthorizationCheck(None).verifies(E.public, Authorizer(None).authorize(E, CORR, TEXT), CORR, TEXT)


def test_a_key_of_low_order_authorizes_nothing() -> None:
    """It cannot come in by a command, but a store may hold one from another program."""
    assert not AuthorizationCheck(b).verifies(X25519PublicKey(bytes(32)), bytes(80), CORR, TEXT)


@pytest.mark.parametrize(
    ("length", "key"),
    [
        (0, Ed25519PublicKey),
        (64, Ed25519PublicKey),
        (80, X25519PublicKey),
        (114, Ed448PublicKey),
    ],
)
def test_pretending_checks_a_dummy_key_of_the_algorithm_used(length: int, key: type[AuthPublicKey]) -> None:
    checked: list[type[AuthPublicKey]] = []

    class Watched(AuthorizationCheck):
        def _check(self, key: AuthPublicKey, auth: bytes, corr_id: bytes, authorized: bytes) -> bool:
            checked.append(type(key))
            return super()._check(key, auth, corr_id, authorized)

    Watched(b).pretend(bytes(length), CORR, TEXT)
    assert checked == [key]


def remembers(check: AuthorizationCheck, key: X25519PublicKey) -> bool:
    return check._agreed is not None and check._agreed.get(key.raw) is not None


def test_a_wrong_authenticator_is_not_remembered() -> None:
    """Otherwise an existing queue would answer sooner the second time."""
    check = AuthorizationCheck(b)
    assert not check.verifies(X.public, bytes(80), CORR, TEXT)
    assert not remembers(check, X.public)
    assert check.verifies(X.public, Authorizer(B).authorize(X, CORR, TEXT), CORR, TEXT)
    assert check.verifies(A, Authorizer(B).authorize(a, CORR, TEXT), CORR, TEXT)
    assert remembers(check, X.public)
    assert remembers(check, A)


def test_a_wrong_authenticator_of_a_known_key_is_agreed_on_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a key that was used in this session would be refused sooner than one that does not exist."""
    check = AuthorizationCheck(b)
    assert check.verifies(X.public, Authorizer(B).authorize(X, CORR, TEXT), CORR, TEXT)
    agreed: list[X25519PublicKey] = []
    agree = X25519PrivateKey.agree

    def note(own: X25519PrivateKey, peer: X25519PublicKey) -> bytes:
        agreed.append(peer)
        return agree(own, peer)

    monkeypatch.setattr(X25519PrivateKey, "agree", note)
    assert not check.verifies(X.public, bytes(80), CORR, TEXT)
    assert agreed == [X.public]


def test_the_oldest_agreed_key_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorization, "MAX_AGREED_KEYS", 2)
    keys = AgreedKeys()
    for number in range(3):
        keys.keep(bytes((number,)), box_key(bytes(32)))
    assert keys.get(b"\x00") is None
    assert keys.get(b"\x01") is not None
    assert keys.get(b"\x02") is not None
