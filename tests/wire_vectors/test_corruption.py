"""Whatever happens to recorded bytes on the way, the receiving side answers with a value or one of our errors.

Contents of blocks are cut at every length and changed at every place (long ones at the places named below).
Signatures are not checked here, so that this stays fast; a few encrypted blocks are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tocsin.crypto.block_chains import BlockChain
from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey
from tocsin.errors import DecodeError, HandshakeRefused, RemoteProtocolError, TocsinError
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.messages import Message
from tocsin.protocol.ntf import handshake as ntf
from tocsin.protocol.ntf.pushes import parse_notification_list, parse_push_json
from tocsin.protocol.sessions import (
    BlockCoder,
    ClientSession,
    ReceivedCommand,
    RefusedCommand,
    RouterSession,
)
from tocsin.protocol.smp import hellos as smp
from tocsin.protocol.smp.client_handshake import SmpClientHandshake
from tocsin.protocol.smp.delivered_messages import NotificationMeta, decode_delivered
from tocsin.protocol.smp.queue_information import QueueInformation
from tocsin.protocol.smp.router_handshake import SmpRouterHandshake
from tocsin.protocol.smp.versions import SUPPORTED
from tocsin.wire.padding import pad
from tools.wire_vectors.files import Fields, Vector, octets, read_folder
from tools.wire_vectors.handshakes import RecordedIdentity, certificates
from tools.wire_vectors.recorded_sessions import DIALECTS, public_key

VECTORS = {vector.name: vector for vector in read_folder(Path(__file__).parent)}
START, END, STRIDE = 400, 64, 97
"""Long contents are changed at their first and last places, and between them at every 97th."""
MASKS = (*(1 << bit for bit in range(8)), 0xFF)
"""Every single bit, and all of them."""


def places(length: int) -> Iterator[int]:
    if length <= START + END:
        yield from range(length)
        return
    yield from range(START)
    yield from range(START, length - END, STRIDE)
    yield from range(length - END, length)


def damaged(content: bytes) -> Iterator[bytes]:
    """Cut at every place, changed at every place."""
    for place in places(len(content)):
        yield content[:place]
        for mask in MASKS:
            yield content[:place] + bytes((content[place] ^ mask,)) + content[place + 1 :]


class Traffic(NamedTuple):
    """Contents of blocks of one vector, by the side that reads them."""

    to_router: list[bytes]
    to_client: list[bytes]


def traffic(vector: Vector) -> Traffic:
    found = Traffic([], [])
    if "content" in vector.fields:
        to_router = vector.direction == "client->server"
        (found.to_router if to_router else found.to_client).append(vector.fields.octets("content"))
    if "request_content" in vector.fields:
        found.to_router.append(vector.fields.octets("request_content"))
    for name, contents in (
        ("request", found.to_router),
        ("inner_request", found.to_router),
        ("response", found.to_client),
        ("event", found.to_client),
        ("outer_response", found.to_client),
        ("inner_response", found.to_client),
    ):
        if name in vector.fields and vector.fields.object(name).has("content"):
            contents.append(vector.fields.object(name).octets("content"))
    if "response_blocks" in vector.fields:
        blocks = vector.fields.items("response_blocks")
        firsts = (block[0].get("content") for block in blocks)
        found.to_client.extend(octets(content, vector.name) for content in firsts if content)
    return found


WITH_TRAFFIC = [name for name, vector in VECTORS.items() if any(traffic(vector))]
HANDSHAKES = [name for name, vector in VECTORS.items() if "server_hello" in vector.fields]
PUSHES = [name for name, vector in VECTORS.items() if "http" in vector.fields]


def _session_parts(vector: Vector) -> tuple[bytes, BlockCoder]:
    return vector.fields.object("session").octets("id"), BlockCoder(DIALECTS[vector.protocol].block_size)


def _router(vector: Vector) -> RouterSession:
    session_id, coder = _session_parts(vector)
    return RouterSession(DIALECTS[vector.protocol], vector.version, session_id, coder, None)


def _client(vector: Vector) -> ClientSession:
    session_id, coder = _session_parts(vector)
    return ClientSession(DIALECTS[vector.protocol], vector.version, session_id, coder, None)


def _block(content: bytes) -> bytes:
    return pad(content, len(content) + 2)


@pytest.mark.parametrize("name", WITH_TRAFFIC)
def test_the_router_answers_every_damaged_block(name: str) -> None:
    vector = VECTORS[name]
    router = _router(vector)
    for original in traffic(vector).to_router:
        for content in damaged(original):
            received = router.read_block(_block(content))
            assert received
            for item in received:
                if isinstance(item, ReceivedCommand):
                    assert item.command.encode(vector.version)
                else:
                    assert isinstance(item, RefusedCommand)


@pytest.mark.parametrize("name", WITH_TRAFFIC)
def test_the_client_reads_or_refuses_every_damaged_block(name: str) -> None:
    vector = VECTORS[name]
    client = _client(vector)
    for original in traffic(vector).to_client:
        for content in damaged(original):
            try:
                received = client.read_block(_block(content))
            except RemoteProtocolError:
                continue
            for item in received:
                if isinstance(item.response, Message):
                    assert item.response.encode(vector.version)
                else:
                    assert isinstance(item.response, RemoteProtocolError)


@pytest.mark.parametrize("name", WITH_TRAFFIC)
def test_both_sides_read_or_refuse_what_was_meant_for_the_other(name: str) -> None:
    vector = VECTORS[name]
    router, client, contents = _router(vector), _client(vector), traffic(vector)
    for content in contents.to_client:
        assert router.read_block(_block(content))
    for content in contents.to_router:
        with suppress(RemoteProtocolError):
            for item in client.read_block(_block(content)):
                assert isinstance(item.response, Message | RemoteProtocolError)


def _hello(vector: Vector, name: str) -> tuple[bytes, Fields]:
    hello = vector.fields.object(name)
    return hello.octets("content"), hello.object("fields")


@pytest.mark.parametrize("name", HANDSHAKES)
def test_damaged_hellos_decode_or_are_refused(name: str) -> None:
    vector = VECTORS[name]
    decoders: list[tuple[str, Callable[[bytes], object]]] = [
        ("server_hello", smp.RouterHello.decode if vector.protocol == "smp" else ntf.NtfRouterHello.decode),
        ("client_hello", smp.ClientHello.decode if vector.protocol == "smp" else ntf.NtfClientHello.decode),
    ]
    if "service_response" in vector.fields:
        decoders.append(("service_response", smp.decode_service_answer))
    for field, decode in decoders:
        for content in damaged(_hello(vector, field)[0]):
            with suppress(DecodeError):
                decode(content)


@pytest.mark.parametrize("name", ["smp-hello-v18", "smp-hello-ed448"])
def test_a_client_refuses_damaged_hellos_with_a_reason(name: str) -> None:
    """Certificates in the hello other than the identity are not looked at: TLS has validated the chain."""
    vector = VECTORS[name]
    content, fields = _hello(vector, "server_hello")
    handshake = SmpClientHandshake(
        vector.fields.octets("key_hash"),
        fields.octets("session_id"),
        public_key(fields.object("leaf_pub")).der,
        X25519PrivateKey(bytes(range(32))),
    )
    leaf = certificates(fields)[0]
    refused = 0
    for place in range(len(content)):
        changed = content[:place] + bytes((content[place] ^ 1,)) + content[place + 1 :]
        try:
            handshake.answer(changed)
        except HandshakeRefused:
            refused += 1
    versions = 4
    assert refused >= len(content) - len(leaf) - versions


@pytest.mark.parametrize("name", ["smp-hello-service-v18", "smp-hello-service-ed448-1cert"])
def test_a_router_refuses_damaged_service_hellos_with_a_reason(name: str) -> None:
    """Here the damaged certificates are also those of TLS, so that they are parsed and verified."""
    vector = VECTORS[name]
    content = _hello(vector, "client_hello")[0]
    hello_fields = _hello(vector, "server_hello")[1]
    identity = RecordedIdentity((vector.fields.octets("key_hash"),), b"")
    for place in range(len(content)):
        changed = content[:place] + bytes((content[place] ^ 1,)) + content[place + 1 :]
        try:
            hello = smp.ClientHello.decode(changed)
        except DecodeError:
            continue
        chain = hello.service.service_key.certificates if hello.service is not None else ()
        handshake = SmpRouterHandshake(
            identity,
            Ed25519PrivateKey(bytes(32)),
            SUPPORTED,
            hello_fields.octets("session_id"),
            chain,
            X25519PrivateKey(bytes(range(32))),
        )
        with suppress(HandshakeRefused):
            handshake.accept(changed, vector.recorded)


def _only_our_errors(read: Callable[[bytes], object], original: bytes) -> None:
    for content in damaged(original):
        with suppress(TocsinError):
            read(content)


@pytest.mark.parametrize("name", PUSHES)
def test_damaged_pushes_are_read_or_refused(name: str) -> None:
    vector = VECTORS[name]
    _only_our_errors(parse_push_json, vector.fields.object("http").text("body").encode())
    if "decrypted" in vector.fields and vector.fields.object("decrypted").has("text"):
        text = vector.fields.object("decrypted").text("text")
        _only_our_errors(lambda data: parse_notification_list(data.decode("latin-1")), text.encode())


@pytest.mark.parametrize(
    "name", [n for n, v in VECTORS.items() if "decrypted" in v.fields and v.protocol == "smp"]
)
def test_damaged_messages_and_metadata_are_read_or_refused(name: str) -> None:
    decrypted = VECTORS[name].fields.object("decrypted")
    if "plain" in decrypted:
        _only_our_errors(decode_delivered, decrypted.octets("plain"))
    else:
        _only_our_errors(NotificationMeta.decode, decrypted.octets("meta"))


def test_damaged_queue_information_is_read_or_refused() -> None:
    command = VECTORS["smp-que-empty"].fields.object("response").object("command")
    _only_our_errors(QueueInformation.from_json, command.text("json").encode())


@pytest.mark.parametrize("place", [0, 15, 16, 17, 8000, 16383])
def test_a_damaged_encrypted_block_is_answered_with_block_and_the_next_is_read(place: int) -> None:
    first, second = VECTORS["smp-block-v18-c2s-1"], VECTORS["smp-block-v18-c2s-2"]
    chain = BlockChain(first.fields.object("chain").octets("c2s_init"))
    coder = BlockCoder(16384, incoming=chain)
    router = RouterSession(DIALECTS["smp"], 18, first.fields.object("session").octets("id"), coder, None)
    raw = first.fields.octets("raw")
    changed = raw[:place] + bytes((raw[place] ^ 1,)) + raw[place + 1 :]
    assert router.read_block(changed) == [RefusedCommand(b"", b"", ErrorCode.BLOCK)]
    assert all(isinstance(item, ReceivedCommand) for item in router.read_block(second.fields.octets("raw")))


@pytest.mark.parametrize("length", [0, 1, 15, 16, 16383])
def test_a_client_refuses_a_cut_encrypted_block(length: int) -> None:
    vector = VECTORS["smp-block-v18-s2c-1"]
    chain = BlockChain(vector.fields.object("chain").octets("s2c_init"))
    coder = BlockCoder(16384, incoming=chain)
    client = ClientSession(DIALECTS["smp"], 18, vector.fields.object("session").octets("id"), coder, None)
    with pytest.raises(RemoteProtocolError):
        client.read_block(vector.fields.octets("raw")[:length])
