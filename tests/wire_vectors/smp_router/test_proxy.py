"""Forwarding: our proxy to the sender, and our router as its relay."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from tests.wire_vectors.smp_router.recorded import REPLAYED, answered, content, part, queue
from tests.wire_vectors.smp_router.stage import VECTORS, Actor, Stage, mirrored, stage
from tocsin.clients import SmpClient
from tocsin.crypto.boxes import box_key
from tocsin.crypto.keys import X25519PrivateKey, X25519PublicKey
from tocsin.crypto.signed_keys import SignedKey
from tocsin.protocol.certificate_keys import CertificateChainKey
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.sessions import BlockCoder, ClientSession, RelayProof, RouterSession
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.proxy_commands import ForwardToRelay
from tocsin.protocol.smp.proxying import seal_forwarded
from tocsin.wire.batches import split_batch
from tocsin.wire.versions import VersionRange
from tools.wire_vectors.handshakes import certificates


class RecordedRelay:
    """In place of the proxy's client: what it was told of the relay, and our router as that relay.

    The key between proxy and relay was not recorded; it seals nothing that a client sees.
    """

    forwarding_key = box_key(b"\x09" * 32)

    def __init__(self, on: Stage) -> None:
        relay, found = part("smp-pfwd-send", "relay"), part("smp-prxy", "response", "command")
        signed = SignedKey.from_der(found.octets("signed_key"))
        session_key = mirrored(X25519PublicKey(relay.octets("server_dh")))
        session_id, coder = relay.octets("session_id"), BlockCoder(SMP.block_size)
        router = RouterSession(SMP, 18, session_id, coder, session_key)
        router.forwarding_key = self.forwarding_key
        self.session = ClientSession(SMP, 18, session_id, coder, None)
        proven = CertificateChainKey(certificates(found), signed)
        self.session.relay = RelayProof(VersionRange(6, 18), proven, self.forwarding_key)
        self._relay = on.connect(router, self.session)
        self.left = asyncio.Event()

    async def request(self, command: Command, *, corr_id: bytes, timeout: float) -> Response:
        answer = await self._relay.ask(command, b"", None, corr_id)
        [received] = self.session.read_block(self.session.to_block(split_batch(answer)))
        assert isinstance(received.response, Response)
        return received.response

    async def events(self) -> AsyncIterator[None]:
        await self.left.wait()
        none: tuple[None, ...] = ()
        for event in none:
            yield event

    @classmethod
    def connect(cls, on: Stage) -> Callable[..., AbstractAsyncContextManager[RecordedRelay]]:
        @asynccontextmanager
        async def connected(*_address: object) -> AsyncIterator[RecordedRelay]:
            relay = cls(on)
            yield relay
            relay.left.set()

        return connected


REPLAYED.extend(("smp-prxy", "smp-pfwd-send", "smp-pfwd-nosession"))


async def test_the_proxy_answers_as_the_reference_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """PKEY and PRES are exact: both layers of encryption that the sender sees, and the block around them."""
    async with stage(monkeypatch) as on:
        monkeypatch.setattr(SmpClient, "connect", RecordedRelay.connect(on))
        sender = on.actor(VECTORS["smp-prxy"])
        await answered(sender, "smp-prxy")
        on.add_queue(queue(sender_id=part("smp-pfwd-send", "inner_request").octets("entity")))
        recorded = part("smp-pfwd-send", "outer_response")
        answer = await _forward(sender, "smp-pfwd-send")
        assert hashlib.sha256(answer).hexdigest() == recorded.text("content_sha256")
        answer = await _forward(sender, "smp-pfwd-nosession")
        assert answer == content("smp-pfwd-nosession", "outer_response")


async def _forward(sender: Actor, name: str) -> bytes:
    """The block was recorded by hash; its parts were recorded whole."""
    inner, relay = part(name, "inner_request"), part(name, "relay")
    own_key = X25519PrivateKey(inner.object("one_time_key").octets("priv"))
    key = box_key(own_key.agree(X25519PublicKey(relay.octets("server_dh"))))
    [transmission] = split_batch(inner.octets("content"))
    sealed = seal_forwarded(key, inner.octets("nonce"), transmission)
    assert hashlib.sha256(sealed).hexdigest() == inner.text("enc_sha256")
    command = ForwardToRelay(relay.integer("version"), own_key.public, sealed)
    session_id = part(name, "outer_response").octets("entity")
    return await sender.ask(command, session_id, None, inner.octets("corr"))
