"""Direct notifications at an SMP router: what its clients and NTF routers do in tests."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from tests.doubles.routers import HOST, make_credentials
from tests.doubles.smp_harness import Notifier, Queue, SmpHarness, SmpTestClient, ed25519, x25519
from tocsin.crypto.credentials import Credentials
from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey, private_key_from_der
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.dialects import DIRECT_SMP
from tocsin.protocol.direct.packets import PACKET_BYTES, PacketFate
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.queue_ids import ids_for
from tocsin.protocol.direct.registration import NtfRouterCredentials
from tocsin.protocol.direct.smp_commands import (
    AssociateQueue,
    NtfSubscription,
    RegisterNtfRouter,
    SendPacketAgain,
    SubscribeNtfRouter,
)
from tocsin.protocol.direct.smp_responses import NtfRouterRegistered, PacketStatus, QueueAssociated
from tocsin.protocol.messages import Response
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.smp_router.settings.settings import SmpDirectSettings

DIRECT_ALPN: Final = (DIRECT_SMP.alpn,)
ISSUED: Final = 1_700_000_000


def direct_settings(**changes: Any) -> SmpDirectSettings:
    """For NTF routers on loopback, which are soon tried again."""
    quick: dict[str, Any] = {
        "enabled": True,
        "public_ntf_routers_only": False,
        "answer_wait": 4.0,
        "response_timeout": 10.0,
        "retry_initial": 0.05,
        "retry_maximum": 0.1,
    }
    return SmpDirectSettings(**(quick | changes))


async def connect_direct(router: SmpHarness) -> SmpTestClient:
    client = await router.connect(alpn=DIRECT_ALPN)
    assert client.session.dialect is DIRECT_SMP
    return client


def some_packet() -> bytes:
    return os.urandom(PACKET_BYTES)


@cache
def ntf_credentials(name: str = "an NTF router") -> Credentials:
    """The same for the same name."""
    return make_credentials()


@dataclass
class NtfIdentity:
    """An NTF router that registers."""

    credentials: Credentials = field(default_factory=ntf_credentials)
    key: Ed25519PrivateKey = field(default_factory=ed25519)
    issued_at: int = ISSUED
    port: str = ""

    @property
    def location(self) -> RouterLocation:
        return RouterLocation((HOST,), self.port, self.credentials.fingerprint)

    def command(self, smp_identity: bytes, **changes: Any) -> RegisterNtfRouter:
        """NSRV for the SMP router with this identity."""
        signer = private_key_from_der(self.credentials.private_key)
        assert isinstance(signer, Ed25519PrivateKey)
        wanted: dict[str, Any] = {
            "location": self.location,
            "certificates": self.credentials.chain,
            "auth_key": self.key.public,
            "issued_at": self.issued_at,
        } | changes
        return RegisterNtfRouter(
            NtfRouterCredentials.signed(**wanted, smp_identity=smp_identity, sign=signer.sign)
        )

    async def register(self, router: SmpHarness, client: SmpTestClient, **changes: Any) -> Response:
        command = self.command(router.credentials.fingerprint, **changes)
        return await client.ask(command, key=self.key)

    async def registered(self, router: SmpHarness, client: SmpTestClient) -> bytes:
        """NSRV that succeeds; the id."""
        answer = await self.register(router, client)
        assert isinstance(answer, NtfRouterRegistered), answer
        return answer.ntf_router_id

    async def subscribe(self, client: SmpTestClient, router_id: bytes) -> Response:
        """NSSUB"""
        return await client.ask(SubscribeNtfRouter(), router_id, self.key)

    async def subscribed(self, router: SmpHarness) -> SmpTestClient:
        """A connection of this NTF router that gets its notifications."""
        client = await connect_direct(router)
        await self.subscribe(client, await self.registered(router, client))
        return client


@dataclass
class Wish:
    """What NSKEY and NEW ask for, with what is needed afterwards."""

    location: RouterLocation
    minimum: MinimumPriority = MinimumPriority.ALL
    packet: bytes = field(default_factory=some_packet)
    dh_key: X25519PrivateKey = field(default_factory=x25519)
    corr_id: bytes = field(default_factory=lambda: os.urandom(24))

    @property
    def notifier_id(self) -> bytes:
        return ids_for(self.corr_id).notifier_id

    @property
    def subscription(self) -> NtfSubscription:
        return NtfSubscription(self.dh_key.public, self.location, self.notifier_id, self.minimum, self.packet)

    async def ask(self, client: SmpTestClient, queue: Queue, replaced: bytes | None = None) -> Response:
        """NSKEY"""
        command = AssociateQueue(self.subscription, replaced)
        return await client.ask(command, queue.recipient_id, queue.key, corr_id=self.corr_id)

    async def associate(
        self, client: SmpTestClient, queue: Queue, replaced: bytes | None = None
    ) -> tuple[Notifier, PacketFate]:
        answer = await self.ask(client, queue, replaced)
        assert isinstance(answer, QueueAssociated), answer
        return Notifier(self.notifier_id, ed25519(), self.dh_key.agree(answer.dh_key)), answer.fate


async def send_again(client: SmpTestClient, queue: Queue, packet: bytes | None = None) -> Response:
    """NPKT"""
    return await client.ask(SendPacketAgain(packet), queue.recipient_id, queue.key)


async def fate_of(client: SmpTestClient, queue: Queue, packet: bytes | None = None) -> PacketFate:
    answer = await send_again(client, queue, packet)
    assert isinstance(answer, PacketStatus), answer
    return answer.fate


async def send_with_priority(client: SmpTestClient, queue: Queue, priority: int) -> Response:
    command = SendMessage(MessageFlags.of_priority(priority), b"hello")
    return await client.ask(command, queue.sender_id, queue.sender_key)
