"""A sender that reaches a relay through a proxy, as clients do (smp.md 6.7)."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tests.doubles.smp_harness import SmpTestClient, x25519
from tocsin.crypto.boxes import BoxKey, as_nonce, box_key, seal
from tocsin.crypto.keys import AuthPrivateKey, X25519PublicKey
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.sessions import BlockCoder, ClientSession
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.proxy_commands import ForwardToRelay, RequestProxySession
from tocsin.protocol.smp.proxying import PADDED_TRANSMISSION_BYTES, seal_forwarded, unseal_forwarded_answer
from tocsin.protocol.smp.responses import ForwardedAnswer, ProxySession
from tocsin.wire.batches import join_batch
from tocsin.wire.padding import pad


@dataclass
class ProxiedSender:
    """One client of a proxy, with a session at one relay."""

    proxy: SmpTestClient
    found: ProxySession

    @classmethod
    async def through(
        cls, proxy: SmpTestClient, relay: RouterLocation, password: bytes | None = None
    ) -> ProxiedSender:
        found = await proxy.expect(ProxySession, RequestProxySession(relay, password))
        return cls(proxy, found)

    @property
    def relay_key(self) -> X25519PublicKey:
        key = self.found.relay_key.signed_key.key
        assert isinstance(key, X25519PublicKey)
        return key

    def session(self, version: int | None = None) -> ClientSession:
        """As if connected to the relay."""
        version = self.found.versions.highest if version is None else version
        return ClientSession(SMP, version, self.found.session_id, BlockCoder(SMP.block_size), self.relay_key)

    async def forward(
        self,
        command: Command,
        entity_id: bytes,
        key: AuthPrivateKey | None = None,
        *,
        version: int | None = None,
        session_id: bytes | None = None,
        copies: int = 1,
    ) -> Response:
        """The relay's answer, or the proxy's if there is none of the relay."""
        session, nonce, own_key = self.session(version), os.urandom(24), x25519()
        agreed = box_key(own_key.agree(self.relay_key))
        transmission = session.request(nonce, entity_id, command, key)
        sealed = _sealed(agreed, nonce, [transmission] * copies)
        assert len(sealed) == PADDED_TRANSMISSION_BYTES + 16
        answer = await self.proxy.ask(
            ForwardToRelay(session.version, own_key.public, sealed),
            self.found.session_id if session_id is None else session_id,
            corr_id=nonce,
        )
        if not isinstance(answer, ForwardedAnswer):
            return answer
        opened = unseal_forwarded_answer(agreed, nonce, answer.transmission)
        [received] = session.read_block(session.to_block([opened]))
        assert received.corr_id == nonce
        assert received.entity_id == entity_id
        assert isinstance(received.response, Response), received.response
        return received.response


def _sealed(key: BoxKey, nonce: bytes, transmissions: list[bytes]) -> bytes:
    if len(transmissions) == 1:
        return seal_forwarded(key, nonce, transmissions[0])
    return seal(key, as_nonce(nonce), pad(join_batch(transmissions), PADDED_TRANSMISSION_BYTES))
