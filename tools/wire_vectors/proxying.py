"""Forwarding through a proxy: PKEY, and the two encrypted layers of PFWD and PRES."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from tocsin.crypto.boxes import BoxKey, box_key
from tocsin.crypto.certificate_chains import validate_server_chain
from tocsin.crypto.keys import X25519PrivateKey, X25519PublicKey, public_key_from_der
from tocsin.errors import RemoteProtocolError
from tocsin.protocol.messages import Response
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.proxy_commands import ForwardToRelay
from tocsin.protocol.smp.proxying import (
    PADDED_TRANSMISSION_BYTES,
    seal_forwarded,
    seal_forwarded_answer,
    unseal_forwarded,
    unseal_forwarded_answer,
)
from tocsin.protocol.smp.responses import ForwardedAnswer, ProxySession
from tocsin.wire.batches import join_batch, split_batch
from tools.wire_vectors.commands import check_command
from tools.wire_vectors.comparison import Mismatch, holds, same
from tools.wire_vectors.files import BadVector, Fields, Vector
from tools.wire_vectors.recorded_sessions import RecordedSession, private_key, recorded_session
from tools.wire_vectors.transmissions import check_item, check_response


def check_proxy_session(vector: Vector, answer: Response) -> None:
    """The chain in PKEY is the relay's, and its leaf signed the relay's session key."""
    if not isinstance(answer, ProxySession):
        return
    server = vector.fields.object("request").object("command").object("server")
    chain, signed = answer.relay_key.certificates, answer.relay_key.signed_key
    leaf = validate_server_chain(chain, server.octets("key_hash"), vector.recorded)
    holds("the relay's key is not signed by its leaf", signed.signed_by(public_key_from_der(leaf)))


def check_forwarding(vector: Vector) -> None:
    session, relay = recorded_session(vector), _relay_session(vector)
    request = vector.fields.object("inner_request")
    key = _one_time_secret(request, relay)
    sealed = _check_inner_request(request, relay, key)
    outer = vector.fields.object("outer_response")
    if "inner_response" not in vector.fields:
        content = outer.octets("content")
        _check_digest("the outer response", content, outer.octets("content_sha256"))
        check_response(session, outer, content)
    else:
        answer = _check_inner_response(vector.fields.object("inner_response"), relay, request, key)
        _check_outer_response(session, outer, answer)
    _check_forward_command(session, relay, request, sealed)


def _relay_session(vector: Vector) -> RecordedSession:
    relay = vector.fields.object("relay")
    router_key = X25519PublicKey(relay.octets("server_dh"))
    return RecordedSession(SMP, relay.integer("version"), relay.octets("session_id"), router_key, None)


def _one_time_secret(request: Fields, relay: RecordedSession) -> BoxKey:
    private = private_key(request.object("one_time_key"))
    if not isinstance(private, X25519PrivateKey) or relay.router_key is None:
        raise BadVector(f"{request.where}.one_time_key is not an X25519 key pair")
    secret = private.agree(relay.router_key)
    same("the secret shared with the relay", secret, request.octets("secret"))
    return box_key(secret)


def _check_inner_request(request: Fields, relay: RecordedSession, key: BoxKey) -> bytes:
    """The command inside as sender and relay see it; returns the sealed transmission."""
    content, nonce = request.octets("content"), request.octets("nonce")
    items = relay.split(content)
    same("the number of forwarded transmissions", len(items), 1)
    received = relay.router().read_block(relay.block(content))[0]
    check_item(relay, request, items[0], received)
    same("padded_len", PADDED_TRANSMISSION_BYTES, request.integer("padded_len"))
    sealed = seal_forwarded(key, nonce, items[0])
    same("enc_len", len(sealed), request.integer("enc_len"))
    _check_digest("the sealed command", sealed, request.octets("enc_sha256"))
    same("the command unsealed again", unseal_forwarded(key, nonce, sealed), items[0])
    return sealed


def _check_inner_response(inner: Fields, relay: RecordedSession, request: Fields, key: BoxKey) -> bytes:
    """The relay's answer; returns it sealed."""
    content, nonce = inner.octets("content"), request.octets("nonce")
    same("the nonce of the answer", nonce[::-1], inner.octets("nonce"))
    same("padded_len", PADDED_TRANSMISSION_BYTES, inner.integer("padded_len"))
    items = relay.split(content)
    same("the number of forwarded answers", len(items), 1)
    received = relay.client().read_block(relay.block(content))[0]
    if isinstance(received.response, RemoteProtocolError):
        raise Mismatch(f"the inner answer is refused: {received.response}")
    built = check_command(received.response, relay.version, inner.object("command"))
    same("the inner answer", built, received.response)
    written = relay.router().response(received.corr_id, received.entity_id, received.response)
    same("the inner answer's bytes", written, items[0])
    same("the correlation id of the inner answer", received.corr_id, request.octets("corr"))
    sealed = seal_forwarded_answer(key, nonce, items[0])
    same("the answer unsealed again", unseal_forwarded_answer(key, nonce, sealed), items[0])
    return sealed


def _check_outer_response(session: RecordedSession, outer: Fields, sealed: bytes) -> None:
    """The proxy's answer is recorded by its digest: ours must have the same."""
    answer = ForwardedAnswer(sealed)
    check_command(answer, session.version, outer.object("command"))
    written = session.router().response(outer.octets("corr"), outer.octets("entity"), answer)
    content = join_batch([written])
    _check_digest("the outer response", content, outer.octets("content_sha256"))
    recorded = Fields(outer.where, {**outer.values, "content": content.hex()})
    check_response(session, recorded, content)


def _check_forward_command(
    session: RecordedSession, relay: RecordedSession, request: Fields, sealed: bytes
) -> None:
    """PFWD itself is not recorded: what we write must be what we read."""
    private = private_key(request.object("one_time_key"))
    assert isinstance(private, X25519PrivateKey)  # _one_time_secret saw to it
    forward = ForwardToRelay(relay.version, private.public, sealed)
    client = replace(session).client()
    written = client.request(request.octets("corr"), relay.session_id, forward, None)
    read = session.router().read_block(session.block(join_batch([written])))
    same("PFWD as our router reads it", read[0][2], forward)
    same("the content of PFWD", split_batch(join_batch([written])), [written])


def _check_digest(what: str, ours: bytes, recorded: bytes) -> None:
    same(f"SHA-256 of {what}", hashlib.sha256(ours).digest(), recorded)
