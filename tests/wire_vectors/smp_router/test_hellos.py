"""Handshakes."""

from __future__ import annotations

from typing import Final

import pytest

from tests.wire_vectors.smp_router.recorded import REPLAYED, SMP_VECTORS, content, part
from tests.wire_vectors.smp_router.stage import (
    VECTORS,
    RecordedConnection,
    Stage,
    frozen_datetime,
    mirrored,
    stage,
)
from tocsin.crypto.block_chains import BlockChain
from tocsin.crypto.credentials import Credentials
from tocsin.crypto.keys import Ed448PrivateKey, Ed25519PrivateKey, X25519PrivateKey, X25519PublicKey
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.sessions import BlockCoder, ClientSession, ServiceRole
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.hellos import RouterHello
from tocsin.smp_router.store.records import ServiceRecord
from tocsin.transport import router_sessions
from tocsin.transport.router_sessions import RouterIdentity
from tocsin.wire.versions import VersionRange
from tools.wire_vectors.files import Fields, Vector
from tools.wire_vectors.handshakes import certificates

HELLOS: Final = sorted(name for name in SMP_VECTORS if {"server_hello", "client_hello"} <= VECTORS[name].kind)


REPLAYED.extend(HELLOS)


@pytest.mark.parametrize("name", HELLOS)
async def test_the_router_shakes_hands_as_the_reference_did(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exact: the answer to a service, and the first encrypted blocks. Of the hello all but the signature of the
    session key: the private key of the recorded certificate is not known.
    """
    vector = VECTORS[name]
    hello = RouterHello.decode(content(name, "server_hello"))
    client_fields = part(name, "client_hello", "fields")
    monkeypatch.setattr(router_sessions, "datetime", frozen_datetime(vector.recorded))
    monkeypatch.setattr(router_sessions, "X25519PrivateKey", lambda _random: _session_key(vector, hello))
    async with stage(monkeypatch, identity=_identity(vector)) as on:
        chain: tuple[bytes, ...] = ()
        if client_fields.has("service"):
            chain = certificates(client_fields.object("service"))
            _prepare_service(on, vector, client_fields.object("service"))
        connection = RecordedConnection(
            session_id=hello.session_id, alpn=vector.fields.value("alpn"), peer_chain=chain
        )
        on.open(connection)
        _compare_hellos(RouterHello.decode(await connection.content()), hello)
        connection.feed(BlockCoder(SMP.block_size).to_block(content(name, "client_hello")))
        if "service_response" in vector.fields:
            assert await connection.content() == content(name, "service_response")
            if part(name, "service_response", "fields").has("error"):
                return
        await _ping(connection, vector)


def _session_key(vector: Vector, hello: RouterHello) -> X25519PrivateKey:
    if "chains" in vector.fields and vector.fields.object("chains").has("server_dh_priv"):
        return X25519PrivateKey(vector.fields.object("chains").octets("server_dh_priv"))
    if hello.router_key is None:  # none is sent without ALPN
        return X25519PrivateKey(b"\x01" * 32)
    key = hello.router_key.signed_key.key
    assert isinstance(key, X25519PublicKey)
    return mirrored(key)


def _identity(vector: Vector) -> RouterIdentity:
    """The recorded certificates, and a key of their algorithm that is not theirs."""
    fields = vector.fields.object("server_hello").object("fields")
    if not fields.has("certs"):  # not sent without ALPN: those of the same router
        fields = part("smp-hello-v18", "server_hello", "fields")
    credentials = Credentials(certificates(fields), b"")
    assert credentials.fingerprint == vector.fields.octets("key_hash")
    is_ed448 = fields.object("leaf_pub").text("alg") == "ed448"
    key = Ed448PrivateKey(bytes(57)) if is_ed448 else Ed25519PrivateKey(bytes(32))
    return RouterIdentity(SMP, credentials, VersionRange(6, 18), key)


def _prepare_service(on: Stage, vector: Vector, claimed: Fields) -> None:
    answer = vector.fields.object("service_response").object("fields")
    if answer.has("service_id"):
        on.randomness.ids.append(answer.octets("service_id"))
    elif answer.text("error").endswith("BAD_SERVICE"):
        taken = next(role for role in ServiceRole if role.value != claimed.text("role").encode())
        on.store.add_service(ServiceRecord(b"S" * 24, taken, (), claimed.octets("fp"), on.clock.time))


def _compare_hellos(ours: RouterHello, recorded: RouterHello) -> None:
    assert (ours.versions, ours.session_id) == (recorded.versions, recorded.session_id)
    if recorded.router_key is None or ours.router_key is None:
        assert ours == recorded
        return
    assert ours.router_key.certificates == recorded.router_key.certificates
    assert ours.router_key.signed_key.key == recorded.router_key.signed_key.key
    assert len(ours.router_key.signed_key.der) == len(recorded.router_key.signed_key.der)


async def _ping(connection: RecordedConnection, vector: Vector) -> None:
    """In the version that was agreed, with the recorded chains if blocks are encrypted."""
    coder = BlockCoder(SMP.block_size)
    if "chains" in vector.fields:
        chains = vector.fields.object("chains")
        coder.outgoing, coder.incoming = BlockChain(chains.octets("c2s")), BlockChain(chains.octets("s2c"))
    client = ClientSession(SMP, vector.version, connection.session_id, coder, None)
    connection.feed(client.to_block([client.request(b"c" * 24, b"", Ping(), None)]))
    assert client.read_block(await connection.block()) == [(b"c" * 24, b"", Pong())]
