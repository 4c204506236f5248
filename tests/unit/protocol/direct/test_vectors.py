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
