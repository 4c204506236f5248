"""Hellos of both protocols, the certificates and signed keys in them, and what our handshakes make of them."""

from __future__ import annotations

import hashlib
from typing import Final

from tocsin.crypto.block_chains import initial_chain_keys
from tocsin.crypto.certificate_chains import (
    certificate_public_key,
    validate_client_chain,
    validate_server_chain,
)
from tocsin.crypto.credentials import Credentials
from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey, X25519PublicKey, public_key_from_der
from tocsin.crypto.signed_keys import SignedKey
from tocsin.protocol.certificate_keys import CertificateChainKey
from tocsin.protocol.error_codes import decode_transport_fault
from tocsin.protocol.ntf import handshake as ntf
from tocsin.protocol.ntf.handshake import NtfClientHandshake, NtfRouterHandshake
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.client_handshake import SmpClientHandshake
from tocsin.protocol.smp.hellos import (
    ClientHello,
    RouterHello,
    ServiceAccepted,
    ServiceAnswer,
    ServiceHello,
    ServiceRejected,
    decode_service_answer,
)
from tocsin.protocol.smp.router_handshake import ServiceClaim, ServiceRefused, SmpRouterHandshake
from tocsin.wire.reader import WireReader
from tocsin.wire.versions import VersionRange
from tools.wire_vectors.comparison import Mismatch, holds, same
from tools.wire_vectors.files import BadVector, Fields, Vector, octets
from tools.wire_vectors.recorded_sessions import ed25519_private_key, public_key

BAD_AUTH: Final = "HANDSHAKE BAD_AUTH"
_ANY_SIGNER: Final = Ed25519PrivateKey(bytes(32))
"""The private keys of the recorded certificates are not known; nothing is signed with this one."""
_ANY_SESSION_KEY: Final = X25519PrivateKey(b"\x01" * 32)


class RecordedIdentity(Credentials):
    """Stands for credentials of which only the fingerprint was recorded."""

    @property
    def fingerprint(self) -> bytes:
        return self.chain[0]


def check_smp_handshake(vector: Vector) -> None:
    router_hello, client_hello = _smp_router_hello(vector), _smp_client_hello(vector)
    answer = _service_answer(vector) if "service_response" in vector.fields else None
    if "chains" in vector.fields:
        _check_chains(vector, router_hello)
    if client_hello.service is not None:
        _check_service(vector, client_hello.service, answer)
    _answer_as_client(vector, router_hello, client_hello)
    _answer_as_router(vector, client_hello, answer)


def check_ntf_handshake(vector: Vector) -> None:
    hello_fields, client_fields = vector.fields.object("server_hello"), vector.fields.object("client_hello")
    content, fields = hello_fields.octets("content"), hello_fields.object("fields")
    signed = _signed_key(fields.object("signed_key")) if fields.has("signed_key") else None
    built = ntf.NtfRouterHello(_versions(fields), fields.octets("session_id"), signed)
    same("the router's hello", ntf.NtfRouterHello.decode(content), built)
    same("the bytes of the router's hello", built.encode(), content)
    sent = client_fields.octets("content")
    client_hello = ntf.NtfClientHello(
        client_fields.object("fields").integer("version"), client_fields.object("fields").octets("key_hash")
    )
    same("the client's hello", ntf.NtfClientHello.decode(sent), client_hello)
    same("the bytes of the client's hello", client_hello.encode(), sent)
    same("the version", client_hello.version, vector.version)
    key_hash = vector.fields.octets("key_hash")
    leaf_key = b"" if signed is None else _checked_leaf_key(fields, signed)
    client = NtfClientHandshake(key_hash, built.session_id, leaf_key, _client_range(built.versions, vector))
    answer, session = client.answer(content)
    same("our client's hello", answer, sent)
    same("our client's version", session.version, vector.version)
    router = NtfRouterHandshake(
        RecordedIdentity((key_hash,), b""), _ANY_SIGNER, built.versions, built.session_id, _ANY_SESSION_KEY
    )
    same("our router's version", router.accept(sent).version, vector.version)


def _versions(fields: Fields) -> VersionRange:
    return VersionRange(fields.integer("min"), fields.integer("max"))


def _client_range(offered: VersionRange, vector: Vector) -> VersionRange:
    """What a client must support to choose the version that was chosen."""
    return VersionRange(offered.lowest, vector.version)


def _signed_key(recorded: Fields) -> SignedKey:
    signed = SignedKey.from_der(recorded.octets("der"))
    same("the signed key's bytes", signed.der, recorded.octets("der"))
    same("the signed bytes", signed.signed_bytes, recorded.octets("signed_bytes"))
    same("the signed key", signed.key.der, recorded.octets("key"))
    same("the signature of the key", signed.signature, recorded.octets("signature"))
    return signed


def _checked_leaf_key(fields: Fields, signed: SignedKey) -> bytes:
    """DER of the leaf's key, which must have signed the session key."""
    leaf = public_key(fields.object("leaf_pub"))
    same("the algorithm of the signature", fields.object("leaf_pub").text("alg"), _algorithm(fields))
    holds("the session key is not signed by the leaf", signed.signed_by(leaf))
    return leaf.der


def _algorithm(fields: Fields) -> str:
    return fields.object("signed_key").text("alg")


def certificates(fields: Fields, name: str = "certs") -> tuple[bytes, ...]:
    return tuple(octets(value, f"{fields.where}.{name}") for value in fields.items(name))


def _smp_router_hello(vector: Vector) -> RouterHello:
    hello = vector.fields.object("server_hello")
    content, fields = hello.octets("content"), hello.object("fields")
    key = None
    if fields.has("signed_key"):
        signed, chain = _signed_key(fields.object("signed_key")), certificates(fields)
        key_hash = vector.fields.octets("key_hash")
        same("the key hash", hashlib.sha256(chain[1]).digest(), key_hash)
        same("the leaf's key", validate_server_chain(chain, key_hash, vector.recorded), _leaf_der(fields))
        _checked_leaf_key(fields, signed)
        key = CertificateChainKey(chain, signed)
    built = RouterHello(_versions(fields), fields.octets("session_id"), key)
    same("the router's hello", RouterHello.decode(content), built)
    same("the bytes of the router's hello", built.encode(), content)
    return built


def _leaf_der(fields: Fields) -> bytes:
    return public_key(fields.object("leaf_pub")).der


def _smp_client_hello(vector: Vector) -> ClientHello:
    hello = vector.fields.object("client_hello")
    content, fields = hello.octets("content"), hello.object("fields")
    service = _service_hello(fields.object("service")) if fields.has("service") else None
    proxy = bool(fields.value("proxy")) if "proxy" in fields else False
    built = ClientHello(
        fields.integer("version"), fields.octets("key_hash"), _client_key(fields), proxy, service
    )
    same("the client's hello", ClientHello.decode(content), built)
    same("the bytes of the client's hello", built.encode(), content)
    same("the version", built.version, vector.version)
    return built


def _client_key(fields: Fields) -> X25519PublicKey | None:
    if fields.has("dh_priv"):
        return X25519PrivateKey(fields.octets("dh_priv")).public
    return X25519PublicKey(fields.octets("dh_pub")) if fields.has("dh_pub") else None


def _service_hello(service: Fields) -> ServiceHello:
    signed = SignedKey.from_der(service.octets("signed_key"))
    same("the service's signed key", signed.der, service.octets("signed_key"))
    if service.has("session_key"):
        ed25519_private_key(service.object("session_key"))
        same("the service's session key", signed.key, public_key(service.object("session_key")))
    else:
        same("the service's session key", signed.key.raw, service.octets("session_key_pub"))
    role = ServiceRole(service.text("role").encode())
    return ServiceHello(role, CertificateChainKey(certificates(service), signed))


def _check_service(vector: Vector, service: ServiceHello, answer: ServiceAnswer | None) -> None:
    recorded = vector.fields.object("client_hello").object("fields").object("service")
    chain, signed = service.service_key.certificates, service.service_key.signed_key
    fingerprint, leaf_key = validate_client_chain(chain, vector.recorded)
    same("the service's fingerprint", fingerprint, recorded.octets("fp"))
    same("the service's leaf key", leaf_key, certificate_public_key(chain[0]))
    refused = isinstance(answer, ServiceRejected) and answer.fault.value == BAD_AUTH
    genuine = signed.signed_by(public_key_from_der(leaf_key))
    same("whether the service's leaf signed the session key", genuine, not refused)


def _service_answer(vector: Vector) -> ServiceAnswer:
    response = vector.fields.object("service_response")
    content, fields = response.octets("content"), response.object("fields")
    built: ServiceAnswer
    if fields.has("service_id"):
        built = ServiceAccepted(fields.octets("service_id"))
    else:
        body = WireReader(fields.text("error").encode())
        built = ServiceRejected(decode_transport_fault(body))
        body.expect_end()
    same("the service answer", decode_service_answer(content), built)
    same("the bytes of the service answer", built.encode(), content)
    return built


def _check_chains(vector: Vector, router_hello: RouterHello) -> None:
    recorded = vector.fields.object("chains")
    if router_hello.router_key is None or not isinstance(
        router_hello.router_key.signed_key.key, X25519PublicKey
    ):
        raise BadVector("block chains without a session key of the router")
    router_key = router_hello.router_key.signed_key.key
    if recorded.has("server_dh_priv"):
        private = X25519PrivateKey(recorded.octets("server_dh_priv"))
        same("the router's session key", private.public, router_key)
        secret = private.agree(X25519PublicKey(recorded.octets("client_dh_pub")))
    else:
        client_fields = vector.fields.object("client_hello").object("fields")
        secret = X25519PrivateKey(client_fields.octets("dh_priv")).agree(router_key)
    same("the secret of the block chains", secret, recorded.octets("secret"))
    keys = initial_chain_keys(router_hello.session_id, secret)
    same("the first key from the router", keys.server_to_client, recorded.octets("s2c"))
    same("the first key from the client", keys.client_to_server, recorded.octets("c2s"))


def _answer_as_client(vector: Vector, router_hello: RouterHello, client_hello: ClientHello) -> None:
    """Our client, told the same, sends the same hello; unless it holds keys that were not recorded."""
    fields = vector.fields.object("server_hello").object("fields")
    client_fields = vector.fields.object("client_hello").object("fields")
    if client_hello.service is not None or client_fields.has("dh_pub"):
        return
    handshake = SmpClientHandshake(
        vector.fields.octets("key_hash"),
        router_hello.session_id,
        _leaf_der(fields) if fields.has("leaf_pub") else b"",
        X25519PrivateKey(client_fields.octets("dh_priv")) if client_fields.has("dh_priv") else None,
        _client_range(router_hello.versions, vector),
        client_hello.proxy,
    )
    sent, _, _ = handshake.answer(vector.fields.object("server_hello").octets("content"))
    same("our client's hello", sent, vector.fields.object("client_hello").octets("content"))


def _answer_as_router(vector: Vector, client_hello: ClientHello, answer: ServiceAnswer | None) -> None:
    """Our router accepts the client's hello, and answers to its service as recorded."""
    fields = vector.fields.object("server_hello").object("fields")
    service_chain = () if client_hello.service is None else client_hello.service.service_key.certificates
    handshake = SmpRouterHandshake(
        RecordedIdentity((vector.fields.octets("key_hash"),), b""),
        _ANY_SIGNER,
        _versions(fields),
        fields.octets("session_id"),
        service_chain,
        _ANY_SESSION_KEY,
    )
    content = vector.fields.object("client_hello").octets("content")
    try:
        accepted = handshake.accept(content, vector.recorded)
    except ServiceRefused as refusal:
        same("our router's service answer", refusal.reply, None if answer is None else answer.encode())
        return
    if answer is None:
        holds("our router waits for a service", not isinstance(accepted, ServiceClaim))
        return
    if not isinstance(accepted, ServiceClaim):
        raise Mismatch("our router sees no service in the hello")
    reply = (
        accepted.accept(answer.service_id)[0]
        if isinstance(answer, ServiceAccepted)
        else accepted.refuse().reply
    )
    same("our router's service answer", reply, answer.encode())
