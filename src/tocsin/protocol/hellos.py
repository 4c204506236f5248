"""The checks that the handshakes of both protocols share (smp.md 4.3, ntf.md 1.4)."""

from __future__ import annotations

import hmac

from tocsin.crypto.keys import X25519PublicKey, public_key_from_der
from tocsin.crypto.signed_keys import SignedKey
from tocsin.errors import BadKey, HandshakeFault, HandshakeRefused
from tocsin.wire.versions import VersionRange


def require_session(received: bytes, own: bytes) -> None:
    """The session id must be the one of this very TLS connection: otherwise the hello was replayed or relayed."""
    if not hmac.compare_digest(received, own):
        raise HandshakeRefused(HandshakeFault.SESSION, "the hello belongs to another TLS session")


def require_identity(received: bytes, own: bytes) -> None:
    if not hmac.compare_digest(received, own):
        raise HandshakeRefused(HandshakeFault.IDENTITY, "the client expects another router identity")


def agree_version(ours: VersionRange, theirs: VersionRange) -> int:
    common = ours.common(theirs)
    if common is None:
        raise HandshakeRefused(HandshakeFault.VERSION, f"versions {ours} and {theirs} have none in common")
    return common.highest


def require_offered(version: int, offered: VersionRange) -> None:
    if version not in offered:
        raise HandshakeRefused(HandshakeFault.VERSION, f"version {version} was not offered ({offered} were)")


def router_session_key(signed: SignedKey, leaf_key: bytes) -> X25519PublicKey:
    """Return the router's session key if the certificate key that TLS saw (DER) signed it."""
    try:
        genuine = signed.signed_by(public_key_from_der(leaf_key))
    except BadKey:
        genuine = False
    if not genuine or not isinstance(signed.key, X25519PublicKey):
        raise HandshakeRefused(
            HandshakeFault.BAD_AUTH, "the session key is not signed by the router's certificate"
        )
    return signed.key
