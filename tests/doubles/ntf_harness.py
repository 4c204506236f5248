"""A real NTF router on real TLS, a client that sees every block, and a device with its keys."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tests.doubles.push_provider import RecordingProvider
from tests.doubles.routers import HOST
from tests.doubles.smp_harness import (
    OK,
    PATIENCE,
    START,
    Asked,
    Notifier,
    Received,
    SmpHarness,
    SmpTestClient,
    ed25519,
    router_credentials,
    until,
    x25519,
)
from tocsin.crypto.boxes import BoxKey, box_key
from tocsin.crypto.credentials import Credentials
from tocsin.crypto.keys import AuthPrivateKey, X25519PrivateKey
from tocsin.ntf_router.running_router import RunningNtfRouter, running_ntf_router
from tocsin.ntf_router.settings.settings import DeliverySettings, NtfSettings, SubscriberSettings
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.records import Accounting
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import (
    MessagePush,
    PushedNotification,
    VerificationPush,
    unseal_code,
    unseal_notifications,
)
from tocsin.protocol.ntf.responses import (
    QueueSubscribed,
    SubscriptionChecked,
    TokenChecked,
    TokenRegistered,
)
from tocsin.protocol.ntf.statuses import SubscriptionStatus, TokenStatus
from tocsin.protocol.ntf.subscription_commands import CheckSubscription, NotifierQueue, SubscribeToQueue
from tocsin.protocol.ntf.token_commands import CheckToken, RegisterToken, VerifyToken
from tocsin.push.provider import Provider
from tocsin.push.settings import ApnsEndpoint, ApnsSettings
from tocsin.transport.client_sessions import DialSettings, dial_ntf
from tocsin.wire.versions import VersionRange

TEST_PROVIDER = PushProvider.APNS_TEST


@dataclass
class HeldFineClock:
    """Stands still until it is moved, but never shows the same instant twice: notifications have an order."""

    time: float = START
    _shown: int = 0

    def now(self) -> int:
        return int(self.time)

    def exactly(self) -> float:
        self._shown += 1
        return self.time + self._shown * 1e-6


class NtfTestClient(SmpTestClient):
    """One connection to an NTF router: `ask`, `send`, `block` as for SMP."""


@dataclass
class Device:
    """A device with its token, as its agent knows it."""

    client: NtfTestClient
    provider: RecordingProvider
    device_token: bytes
    key: AuthPrivateKey = field(default_factory=ed25519)
    dh_key: X25519PrivateKey = field(default_factory=x25519)
    token_id: bytes = b""
    secret: BoxKey = field(default=BoxKey(b""))
    push_provider: PushProvider = TEST_PROVIDER

    def register_command(self) -> RegisterToken:
        return RegisterToken(
            DeviceToken(self.push_provider, self.device_token), self.key.public, self.dh_key.public
        )

    async def register(self) -> TokenRegistered:
        """TNEW; remembers the id and the secret."""
        registered = await self.client.expect(TokenRegistered, self.register_command(), key=self.key)
        self.token_id = registered.token_id
        self.secret = box_key(self.dh_key.agree(registered.dh_key))
        return registered

    async def code(self) -> bytes:
        """From the next push, which must be a verification."""
        push = await self.provider.next_push(self.device_token)
        assert isinstance(push, VerificationPush), push
        return unseal_code(self.secret, push)

    async def activate(self) -> Device:
        await self.register()
        assert await self.ask(VerifyToken(await self.code())) == OK
        return self

    async def ask(self, command: Any) -> Response:
        return await self.client.ask(command, self.token_id, self.key)

    async def status(self) -> TokenStatus:
        """TCHK"""
        return (await self.client.expect(TokenChecked, CheckToken(), self.token_id, self.key)).status

    def subscribe_command(self, queue: NotifierQueue, key: AuthPrivateKey) -> SubscribeToQueue:
        return SubscribeToQueue(self.token_id, queue, key)

    async def subscribe(self, queue: NotifierQueue, key: AuthPrivateKey) -> bytes:
        """SNEW; the subscription's id."""
        answer = await self.client.expect(QueueSubscribed, self.subscribe_command(queue, key), key=self.key)
        return answer.subscription_id

    async def subscription_status(self, subscription_id: bytes) -> SubscriptionStatus:
        """SCHK"""
        answer = await self.client.expect(SubscriptionChecked, CheckSubscription(), subscription_id, self.key)
        return answer.status

    async def notifications(self) -> tuple[PushedNotification, ...]:
        """From the next push, which must be one of messages."""
        push = await self.provider.next_push(self.device_token)
        assert isinstance(push, MessagePush), push
        return unseal_notifications(self.secret, push)


@dataclass
class NtfHarness:
    """A running router and those who are connected to it."""

    running: RunningNtfRouter
    credentials: Credentials
    store: NtfStore
    provider: RecordingProvider
    clock: HeldFineClock
    clients: list[NtfTestClient] = field(default_factory=list)

    @property
    def location(self) -> RouterLocation:
        return RouterLocation((HOST,), str(self.running.ports[0]), self.credentials.fingerprint)

    async def connect(self, version: int = 3, *, alpn: tuple[str, ...] | None = None) -> NtfTestClient:
        settings = DialSettings(connect_timeout=PATIENCE, versions=VersionRange(version, version), alpn=alpn)
        client = NtfTestClient(await dial_ntf(RouterAddress(Scheme.NTF, self.location), settings))
        self.clients.append(client)
        return client

    async def device(
        self,
        device_token: bytes | None = None,
        *,
        version: int = 3,
        provider: PushProvider = TEST_PROVIDER,
    ) -> Device:
        token = device_token or os.urandom(8).hex().encode()
        return Device(await self.connect(version), self.provider, token, push_provider=provider)

    async def active_device(self, device_token: bytes | None = None) -> Device:
        return await (await self.device(device_token)).activate()

    async def subscribed_queues(self, count: int) -> None:
        """Waits until so many NSUB have been accepted since the start."""
        await until(lambda: self.running.state.counters.queues_subscribed >= count)

    async def settled(self, received: int) -> Accounting:
        """Waits until so many notifications have come since the store was made, and nothing is pending."""
        async with asyncio.timeout(PATIENCE):
            while True:
                accounting = await self.store.accounting()
                if accounting.received >= received and not accounting.pending:
                    return accounting
                await asyncio.sleep(0.01)


def queue_at(router: SmpHarness, notifier: Notifier) -> NotifierQueue:
    return NotifierQueue(router.location, notifier.notifier_id)


def ntf_settings(**changes: Any) -> NtfSettings:
    """As the reference's tests, with shorter intervals."""
    settings = NtfSettings(
        hosts=(HOST,),
        ports=(0,),
        store=None,
        drain_seconds=1.0,
        apns=ApnsSettings(endpoints={"apns_test": ApnsEndpoint("localhost")}),
        subscriber=SubscriberSettings(
            connect_timeout=PATIENCE,
            response_timeout=PATIENCE,
            reconnect_initial=0.05,
            reconnect_maximum=0.2,
            use_service_credentials=True,
            allow_private_hosts=True,
        ),
        delivery=DeliverySettings(retry_initial=0.02, retry_maximum=0.1),
    )
    return replace(settings, **changes)


@asynccontextmanager
async def ntf_router(
    store: NtfStore | None = None,
    *,
    provider: RecordingProvider | None = None,
    providers: Mapping[PushProvider, Provider] | None = None,
    clock: HeldFineClock | None = None,
    credentials: Credentials | None = None,
    events: Any = None,
    vapid_key: bytes | None = None,
    **changes: Any,
) -> AsyncIterator[NtfHarness]:
    store, provider, clock = (
        store or NtfMemoryStore(),
        provider or RecordingProvider(),
        clock or HeldFineClock(),
    )
    credentials = credentials or router_credentials()
    async with running_ntf_router(
        ntf_settings(**changes),
        credentials,
        store,
        providers or {TEST_PROVIDER: provider, PushProvider.APNS_NULL: RecordingProvider()},
        clock=clock,
        events=events,
        vapid_key=vapid_key,
    ) as running:
        harness = NtfHarness(running, credentials, store, provider, clock)
        yield harness
        for client in harness.clients:
            await client.close()


__all__ = [
    "Asked",
    "Device",
    "HeldFineClock",
    "NtfHarness",
    "NtfTestClient",
    "Received",
    "ntf_router",
    "ntf_settings",
    "queue_at",
    "until",
]
