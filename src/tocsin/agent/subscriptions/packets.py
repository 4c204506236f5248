"""Packets that a device seals for its NTF router (docs/direct-notifications.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from tocsin.agent.runtime.randomness import new_dh_key
from tocsin.agent.store.records import AgentToken
from tocsin.crypto.keys import Ed25519PrivateKey, private_key_from_der
from tocsin.errors import LocalProtocolError
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.packets import PacketKind, Statement, seal_packet
from tocsin.protocol.ntf.subscription_commands import NotifierQueue


@dataclass(frozen=True, slots=True)
class Packets:
    """Seals packets of one token. Created by `of`."""

    token_id: bytes = field(repr=False)
    ntf_router: RouterLocation
    offer: NtfKeyOffer
    _key: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def of(cls, token: AgentToken | None) -> Self | None:
        """Return None if the NTF router offered no key for packets, or the token's key is not Ed25519."""
        if token is None or token.token_id is None or token.ntf_key is None:
            return None
        key = private_key_from_der(token.key)
        if not isinstance(key, Ed25519PrivateKey):
            return None
        return cls(token.token_id, token.router, token.ntf_key, key)

    @classmethod
    def at(cls, token: AgentToken | None, now: float) -> Self | None:
        """Return the same as `of`, but None if the key has expired."""
        packets = cls.of(token)
        return packets if packets is not None and packets.offer.expires_at > now else None

    def associate(self, router: RouterLocation, notifier_id: bytes) -> bytes | None:
        """Return None if the SMP router's hosts do not fit: the agent then subscribes its queues with NKEY."""
        return self._sealed(PacketKind.ASSOCIATE, router, notifier_id)

    def dissociate(self, router: RouterLocation, notifier_id: bytes) -> bytes | None:
        return self._sealed(PacketKind.DISSOCIATE, router, notifier_id)

    def _sealed(self, kind: PacketKind, router: RouterLocation, notifier_id: bytes) -> bytes | None:
        try:
            return seal_packet(
                Statement(kind, self.token_id, NotifierQueue(router, notifier_id)),
                ntf_identity=self.ntf_router.key_hash,
                token_key=self._key,
                offer=self.offer,
                ephemeral=new_dh_key(),
            )
        except LocalProtocolError:
            return None
