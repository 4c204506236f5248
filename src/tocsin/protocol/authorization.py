"""Authorization of commands (smp.md 5.3, ntf.md 1.7): signatures, and authenticators by X25519 keys.

An authenticator needs a key agreement with the other side's session key (about 40 µs). The result is kept for the
session, but only after it has proved right, and only right authenticators are checked faster with it. A wrong one
costs the same whether or not the entity exists.
"""

from __future__ import annotations

from typing import Final

from tocsin.crypto.boxes import AUTHENTICATOR_BYTES, BoxKey, authenticates, authenticator, box_key
from tocsin.crypto.keys import (
    ED448_SIGNATURE_BYTES,
    ED25519_SIGNATURE_BYTES,
    AuthPrivateKey,
    AuthPublicKey,
    Ed448PrivateKey,
    Ed448PublicKey,
    Ed25519PrivateKey,
    Ed25519PublicKey,
    X25519PrivateKey,
    X25519PublicKey,
)
from tocsin.errors import BadKey, LocalProtocolError

AUTH_LENGTHS: Final = frozenset({0, ED25519_SIGNATURE_BYTES, ED448_SIGNATURE_BYTES, AUTHENTICATOR_BYTES})
"""Any other length is not an authorization and gives ERR BLOCK."""
AUTH_BYTES: Final[dict[type[AuthPublicKey], int]] = {
    Ed25519PublicKey: ED25519_SIGNATURE_BYTES,
    Ed448PublicKey: ED448_SIGNATURE_BYTES,
    X25519PublicKey: AUTHENTICATOR_BYTES,
}
MAX_AGREED_KEYS: Final = 4096
"""Agreed keys kept per session; the oldest goes first. About 150 bytes each."""

# These keys belong to nobody: no command is ever accepted with them.
_DUMMY_ED25519: Final = Ed25519PrivateKey(b"\x01" * 32).public
_DUMMY_ED448: Final = Ed448PrivateKey(b"\x01" * 57).public
_DUMMY_X25519: Final = X25519PrivateKey(b"\x01" * 32).public


class AgreedKeys:
    """Box keys agreed in this session, by the other key's raw bytes. When full, the oldest is dropped."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: dict[bytes, BoxKey] = {}

    def get(self, raw: bytes) -> BoxKey | None:
        return self._keys.get(raw)

    def keep(self, raw: bytes, key: BoxKey) -> None:
        if len(self._keys) >= MAX_AGREED_KEYS:
            del self._keys[next(iter(self._keys))]
        self._keys[raw] = key


class Authorizer:
    """The client's side: makes authorizations for the router with this session key."""

    __slots__ = ("_agreed", "_router_key")

    def __init__(self, router_key: X25519PublicKey | None) -> None:
        self._router_key = router_key
        self._agreed = AgreedKeys()

    def authorize(self, key: AuthPrivateKey, corr_id: bytes, authorized: bytes) -> bytes:
        """Raises `LocalProtocolError` for an X25519 key where the router gave no session key."""
        if isinstance(key, X25519PrivateKey):
            return authenticator(self._agree(key), corr_id, authorized)
        return key.sign(authorized)

    def _agree(self, key: X25519PrivateKey) -> BoxKey:
        agreed = self._agreed.get(key.raw)
        if agreed is None:
            if self._router_key is None:
                raise LocalProtocolError("the router gave no session key: X25519 keys cannot authorize here")
            agreed = box_key(key.agree(self._router_key))
            self._agreed.keep(key.raw, agreed)
        return agreed


class AuthorizationCheck:
    """The router's side: checks authorizations made for this session key."""

    __slots__ = ("_agreed", "_session_key")

    def __init__(self, session_key: X25519PrivateKey | None) -> None:
        self._session_key = session_key
        self._agreed: AgreedKeys | None = None

    def verifies(self, key: AuthPublicKey, auth: bytes, corr_id: bytes, authorized: bytes) -> bool:
        """Check an authorization. One of another algorithm costs the same: a faster refusal would reveal the key."""
        if len(auth) != AUTH_BYTES[type(key)]:
            self.pretend(auth, corr_id, authorized)
            return False
        return self._check(key, auth, corr_id, authorized)

    def _check(self, key: AuthPublicKey, auth: bytes, corr_id: bytes, authorized: bytes) -> bool:
        if not isinstance(key, X25519PublicKey):
            return key.verifies(auth, authorized)
        agreed = self._agreed.get(key.raw) if self._agreed is not None else None
        if agreed is None:
            return self._verifies_first_time(key, auth, corr_id, authorized)
        if authenticates(agreed, auth, corr_id, authorized):
            return True
        # Wasted on purpose: otherwise a key that was used in this session would be refused faster than others.
        self._agree(key)
        return False

    def pretend(self, auth: bytes, corr_id: bytes, authorized: bytes) -> None:
        """Do the work of a failed check, for an entity that does not exist: its answer must not come sooner."""
        dummy: AuthPublicKey = _DUMMY_ED25519
        if len(auth) == ED448_SIGNATURE_BYTES:
            dummy = _DUMMY_ED448
        elif len(auth) == AUTHENTICATOR_BYTES:
            dummy = _DUMMY_X25519
        self._check(dummy, auth, corr_id, authorized)

    def _verifies_first_time(
        self, key: X25519PublicKey, auth: bytes, corr_id: bytes, authorized: bytes
    ) -> bool:
        agreed = self._agree(key)
        if agreed is None or not authenticates(agreed, auth, corr_id, authorized):
            return False
        if self._agreed is None:
            self._agreed = AgreedKeys()
        self._agreed.keep(key.raw, agreed)
        return True

    def _agree(self, key: X25519PublicKey) -> BoxKey | None:
        """Return None without a session key, and for a key of low order."""
        if self._session_key is None:
            return None
        try:
            return box_key(self._session_key.agree(key))
        except BadKey:
            return None
