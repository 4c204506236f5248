"""A device that knows direct notifications: it seals packets, and hands them over as an SMP router would."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tests.doubles.ntf_harness import Device, NtfHarness, NtfTestClient
from tests.doubles.smp_harness import x25519
from tocsin.crypto.keys import Ed25519PrivateKey
from tocsin.protocol.direct.dialects import DIRECT_NTF
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.ntf_messages import (
    ForwardPacket,
    PacketHandled,
    TokenCheckedWithKey,
    TokenRegisteredWithKey,
)
from tocsin.protocol.direct.packets import PacketFate, PacketKind, Statement, seal_packet
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ntf.token_commands import CheckToken, VerifyToken


@dataclass
class DirectDevice:
    """Active, with the key that its NTF router gave it."""

    device: Device
    offer: NtfKeyOffer
    ntf_identity: bytes

    def packet(
        self,
        queue: NotifierQueue,
        kind: PacketKind = PacketKind.ASSOCIATE,
        *,
        token_id: bytes | None = None,
        key: Ed25519PrivateKey | None = None,
        ntf_identity: bytes | None = None,
        offer: NtfKeyOffer | None = None,
    ) -> bytes:
        """As the device makes it, or with something that is not its own."""
        own_key = self.device.key
        assert isinstance(own_key, Ed25519PrivateKey)
        return seal_packet(
            Statement(kind, token_id or self.device.token_id, queue),
            ntf_identity=ntf_identity or self.ntf_identity,
            token_key=key or own_key,
            offer=offer or self.offer,
            ephemeral=x25519(),
        )

    async def newest_key(self) -> NtfKeyOffer:
        """TCHK"""
        return await told_key(self.device)


async def told_key(device: Device) -> NtfKeyOffer:
    """TCHK, on a connection with direct notifications."""
    checked = await device.client.expect(TokenCheckedWithKey, CheckToken(), device.token_id, device.key)
    assert checked.ntf_key is not None
    return checked.ntf_key


async def direct_client(ntf: NtfHarness) -> NtfTestClient:
    return await ntf.connect(alpn=(DIRECT_NTF.alpn,))


async def direct_device(ntf: NtfHarness) -> DirectDevice:
    client = await direct_client(ntf)
    device = Device(client, ntf.provider, os.urandom(8).hex().encode())
    registered = await device.register()
    assert isinstance(registered, TokenRegisteredWithKey)
    assert registered.ntf_key is not None
    await device.ask(VerifyToken(await device.code()))
    return DirectDevice(device, registered.ntf_key, ntf.credentials.fingerprint)


async def forward(forwarder: NtfTestClient, packet: bytes) -> PacketFate:
    """SFWD, by whoever."""
    return (await forwarder.expect(PacketHandled, ForwardPacket(packet))).fate
