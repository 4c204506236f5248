"""The published vectors are what the code makes, and can be used without it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import nacl.bindings as sodium
import nacl.signing
import pytest

from tocsin.protocol.direct.dialects import DIRECT_NTF, DIRECT_SMP
from tocsin.protocol.messages import UnknownTag
from tools import direct_vectors

PUBLISHED: dict[str, Any] = json.loads(direct_vectors.FILE.read_text())


def raw(text: str) -> bytes:
    return bytes.fromhex(text)


def test_the_file_is_current() -> None:
    assert direct_vectors.FILE.read_text() == direct_vectors.text(), "run: python -m tools.direct_vectors"


def test_ids_by_the_hash_alone() -> None:
    ids = PUBLISHED["ids"]
    assert hashlib.sha3_384(raw(ids["correlation_id"])).hexdigest() == ids["sender_id"] + ids["notifier_id"]


@pytest.mark.parametrize("vector", PUBLISHED["packets"], ids=lambda vector: vector["kind"])
def test_packets_by_libsodium_alone(vector: dict[str, str]) -> None:
    key = PUBLISHED["ntf_key"]
    packet = raw(vector["packet"])
    assert packet[:8] == hashlib.sha256(raw(key["public"])).digest()[:8] == raw(key["key_id"])
    padded = sodium.crypto_box_seal_open(packet[8:], raw(key["public"]), raw(key["private"]))
    content = padded[2 : 2 + int.from_bytes(padded[:2], "big")]
    assert content[64:] == raw(vector["statement"])
    signer = nacl.signing.SigningKey(raw(vector["token_private_key"])).verify_key
    signed = b"direct-notifications/1" + raw(vector["ntf_identity"]) + raw(vector["statement"])
    signer.verify(signed, content[:64])


@pytest.mark.parametrize(("protocol", "dialect"), [("smp", DIRECT_SMP), ("ntf", DIRECT_NTF)])
def test_messages_are_read_back(protocol: str, dialect: Any) -> None:
    part = PUBLISHED[protocol]
    assert part["alpn"] == dialect.alpn
    for message in part["messages"]:
        wire = raw(message["wire"])
        try:
            decoded = dialect.commands.decode(wire, part["version"])
        except UnknownTag:
            decoded = dialect.responses.decode(wire, part["version"])
        assert decoded.encode(part["version"]) == wire
        assert wire.split(b" ")[0].decode() == message["tag"]


@pytest.mark.parametrize("flags", PUBLISHED["flags_read"])
def test_flags_by_their_first_two_bytes(flags: str) -> None:
    expected = 0 if flags[0] == "F" else int(flags[1]) if flags[1:2] in ("2", "3") else 1
    assert PUBLISHED["flags_read"][flags] == expected


@pytest.mark.parametrize("server", PUBLISHED["servers"], ids=lambda server: str(len(server["wire"]) // 2))
def test_servers_byte_by_byte(server: dict[str, Any]) -> None:
    texts = [*server["hosts"], server["port"]]
    written = b"".join(bytes([len(text)]) + text.encode() for text in texts)
    assert raw(server["wire"]) == bytes([len(server["hosts"])]) + written + b"\x20" + bytes(range(32))


def test_the_longest_server_fills_a_statement() -> None:
    """The document says so: 275 bytes of 326."""
    assert len(raw(PUBLISHED["servers"][-1]["wire"])) == 275
    statement = PUBLISHED["packets"][-1]["statement"]
    assert len(raw(statement)) == 326
    assert PUBLISHED["servers"][-1]["wire"] in statement


def test_the_key_for_web_push_by_libsodium_alone() -> None:
    vector = PUBLISHED["vapid_key"]
    signed = b"direct-notifications/1 vapid key" + raw(vector["ntf_identity"]) + raw(vector["public"])
    nacl.signing.SigningKey(raw(vector["leaf_private_key"])).verify_key.verify(
        signed, raw(vector["signature"])
    )
    assert len(raw(vector["public"])) == 65
    written = [message["wire"] for message in PUBLISHED["ntf"]["messages"] if message["tag"] == "VAPID"]
    assert written == [b"VAPID ".hex() + vector["public"] + "40" + vector["signature"]]


def test_priorities_that_reach_the_recipient_byte_by_byte() -> None:
    time = (1_800_000_000).to_bytes(8, "big")
    for vector, flags in zip(PUBLISHED["delivered"], (b"F", b"T", b"T2", b"T3"), strict=True):
        assert raw(vector["plain"]) == time + flags + b" body"
    for vector, end in zip(PUBLISHED["metadata"], (b"", b"2", b"3"), strict=True):
        assert raw(vector["plain"]) == b"\x18" + b"\x06" * 24 + time + end
