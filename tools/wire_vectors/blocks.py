"""Encrypted transport blocks: the chain of one direction, stepped to where the block is."""

from __future__ import annotations

from typing import Final

from tocsin.crypto.block_chains import BlockChain, chain_step, initial_chain_keys
from tocsin.crypto.boxes import box_key, seal
from tocsin.crypto.keys import X25519PrivateKey, X25519PublicKey
from tocsin.errors import RemoteProtocolError
from tocsin.protocol.sessions import BlockCoder, ClientSession, RefusedCommand, RouterSession
from tocsin.wire.padding import pad
from tools.wire_vectors.comparison import Mismatch, holds, same
from tools.wire_vectors.files import BadVector, Fields, Vector
from tools.wire_vectors.recorded_sessions import RecordedSession, recorded_session

FROM_CLIENT: Final = "client->server"
FROM_ROUTER: Final = "server->client"


def check_block(vector: Vector) -> None:
    session = recorded_session(vector)
    content, raw = vector.fields.octets("content"), vector.fields.octets("raw")
    chain_key = _chain_key(session, vector)
    same("the block", _coder(session, outgoing=chain_key).to_block(content), raw)
    same("the content", _coder(session, incoming=chain_key).from_block(raw), content)
    session.split(content)
    _check_readable(session, vector.direction, _coder(session, incoming=chain_key), raw)


def _chain_key(session: RecordedSession, vector: Vector) -> bytes:
    """The chain key before the block's own step."""
    chain = vector.fields.object("chain")
    keys = initial_chain_keys(session.session_id, _secret(vector.fields.object("session"), session))
    same("the first key from the router", keys.server_to_client, chain.octets("s2c_init"))
    same("the first key from the client", keys.client_to_server, chain.octets("c2s_init"))
    if vector.direction not in (FROM_CLIENT, FROM_ROUTER):
        raise BadVector(f"direction {vector.direction!r} of an encrypted block")
    key = keys.client_to_server if vector.direction == FROM_CLIENT else keys.server_to_client
    for _ in range(chain.integer("step") - 1):
        key = chain_step(key).next_key
    _check_step(key, chain, session, vector.fields.octets("content"), vector.fields.octets("raw"))
    return key


def _check_step(key: bytes, chain: Fields, session: RecordedSession, content: bytes, raw: bytes) -> None:
    step = chain_step(key)
    same("the chain key before", key, chain.octets("chain_key_before"))
    same("the chain key after", step.next_key, chain.octets("chain_key_after"))
    same("the box key", step.secret, chain.octets("box_key"))
    same("the nonce", step.nonce, chain.octets("nonce"))
    padded = pad(content, session.dialect.block_size - 16)
    same("the sealed block", seal(box_key(step.secret), step.nonce, padded), raw)


def _secret(fields: Fields, session: RecordedSession) -> bytes:
    if session.router_private_key is not None:
        return session.router_private_key.agree(X25519PublicKey(fields.octets("client_dh")))
    if session.router_key is None:
        raise BadVector(f"{fields.where} has no server_dh")
    return X25519PrivateKey(fields.octets("client_dh_priv")).agree(session.router_key)


def _coder(
    session: RecordedSession, *, outgoing: bytes | None = None, incoming: bytes | None = None
) -> BlockCoder:
    return BlockCoder(
        session.dialect.block_size,
        None if outgoing is None else BlockChain(outgoing),
        None if incoming is None else BlockChain(incoming),
    )


def _check_readable(session: RecordedSession, direction: str, coder: BlockCoder, raw: bytes) -> None:
    """The session of the receiving side reads the block, and every message in it."""
    if direction == FROM_CLIENT:
        router = RouterSession(session.dialect, session.version, session.session_id, coder, None)
        for command in router.read_block(raw):
            holds("our router refuses a command of the block", not isinstance(command, RefusedCommand))
        return
    client = ClientSession(session.dialect, session.version, session.session_id, coder, session.router_key)
    for received in client.read_block(raw):
        if isinstance(received.response, RemoteProtocolError):
            raise Mismatch(f"our client refuses a response of the block: {received.response}")
