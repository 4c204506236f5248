"""The session of a vector as our session objects, and the keys that vectors give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.crypto.keys import (
    AuthPrivateKey,
    AuthPublicKey,
    Ed448PrivateKey,
    Ed448PublicKey,
    Ed25519PrivateKey,
    Ed25519PublicKey,
    X25519PrivateKey,
    X25519PublicKey,
)
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.sessions import BlockCoder, ClientSession, RouterSession, ServicePeer, ServiceSession
from tocsin.protocol.smp.dialect import SMP
from tocsin.wire.batches import join_batch, split_batch
from tocsin.wire.padding import pad
from tocsin.wire.transmissions import TransmissionLayout
from tools.wire_vectors.comparison import same
from tools.wire_vectors.files import BadVector, Fields, Vector

DIALECTS: Final = {"smp": SMP, "ntf": NTF}

_PUBLIC: Final[dict[str, type[AuthPublicKey]]] = {
    "ed25519": Ed25519PublicKey,
    "ed448": Ed448PublicKey,
    "x25519": X25519PublicKey,
}
_PRIVATE: Final[dict[str, type[AuthPrivateKey]]] = {
    "ed25519": Ed25519PrivateKey,
    "ed448": Ed448PrivateKey,
    "x25519": X25519PrivateKey,
}


def dialect_of(vector: Vector) -> Dialect:
    try:
        return DIALECTS[vector.protocol]
    except KeyError:
        raise BadVector(f"protocol {vector.protocol!r} has no sessions") from None


def public_key(key: Fields) -> AuthPublicKey:
    """The key of `{"alg", "pub"[, "priv"]}`."""
    try:
        return _PUBLIC[key.text("alg")](key.octets("pub"))
    except KeyError:
        raise BadVector(f"{key.where}: unknown key algorithm") from None


def private_key(key: Fields) -> AuthPrivateKey | None:
    """The private key, if it was recorded; it must belong to the public one."""
    public = public_key(key)
    if not key.has("priv"):
        return None
    private = _PRIVATE[key.text("alg")](key.octets("priv"))
    same(f"{key.where}: the public key", private.public.raw, public.raw)
    return private


def ed25519_private_key(key: Fields) -> Ed25519PrivateKey | None:
    private = private_key(key)
    if private is not None and not isinstance(private, Ed25519PrivateKey):
        raise BadVector(f"{key.where} is not an Ed25519 key")
    return private


def ed25519_public_key(key: Fields) -> Ed25519PublicKey:
    public = public_key(key)
    if not isinstance(public, Ed25519PublicKey):
        raise BadVector(f"{key.where} is not an Ed25519 key")
    return public


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """What is known of the session in which a vector was recorded."""

    dialect: Dialect
    version: int
    session_id: bytes
    router_key: X25519PublicKey | None
    router_private_key: X25519PrivateKey | None

    @property
    def layout(self) -> TransmissionLayout:
        return self.dialect.layout(self.version)

    def client(self, service: ServiceSession | None = None) -> ClientSession:
        coder = BlockCoder(self.dialect.block_size)
        return ClientSession(self.dialect, self.version, self.session_id, coder, self.router_key, service)

    def router(
        self, session_key: X25519PrivateKey | None = None, service: ServicePeer | None = None
    ) -> RouterSession:
        coder = BlockCoder(self.dialect.block_size)
        key = session_key or self.router_private_key
        return RouterSession(self.dialect, self.version, self.session_id, coder, key, service)

    def block(self, content: bytes) -> bytes:
        """The content as an unencrypted block."""
        return pad(content, self.dialect.block_size)

    def split(self, content: bytes) -> list[bytes]:
        """The transmissions of a content; joining them must give the same content again."""
        if self.version < self.dialect.batches_from:
            return [content]
        items = split_batch(content)
        same("the content joined again", join_batch(items), content)
        return items

    def item(self, content: bytes, place: Fields) -> bytes:
        """The transmission that a request, response or event is about."""
        items = self.split(content)
        same(f"{place.where}: the number of transmissions", len(items), place.integer("count"))
        return picked(items, place)


def picked(items: Sequence[bytes], place: Fields) -> bytes:
    index = place.integer("index")
    if not 0 <= index < len(items):
        raise BadVector(f"{place.where}.index is {index}, there are {len(items)} transmissions")
    return items[index]


def recorded_session(vector: Vector) -> RecordedSession:
    """Raises `Mismatch` if the recorded keys do not belong together."""
    session = vector.fields.object("session")
    router_key = X25519PublicKey(session.octets("server_dh")) if session.has("server_dh") else None
    router_private = None
    if session.has("server_dh_priv"):
        router_private = X25519PrivateKey(session.octets("server_dh_priv"))
        same("session.server_dh", router_private.public, router_key)
    if session.has("secret") and router_key is not None:
        same("session.secret", _secret(session, router_key, router_private), session.octets("secret"))
    return RecordedSession(
        dialect_of(vector), vector.version, session.octets("id"), router_key, router_private
    )


def _secret(session: Fields, router_key: X25519PublicKey, router_private: X25519PrivateKey | None) -> bytes:
    if router_private is not None:
        return router_private.agree(X25519PublicKey(session.octets("client_dh")))
    return X25519PrivateKey(session.octets("client_dh_priv")).agree(router_key)
