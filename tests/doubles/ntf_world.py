"""Everything between a sender and a device: SMP routers, an NTF router that really talks HTTP/2, and a fake APNs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from tests.doubles.kept_ports import KeptPort
from tests.doubles.ntf_harness import (
    TEST_PROVIDER,
    Device,
    HeldFineClock,
    NtfHarness,
    ntf_router,
    queue_at,
)
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import (
    OK,
    PATIENCE,
    Notifier,
    Queue,
    SmpHarness,
    SmpTestClient,
    create_command,
    ed25519,
    opened,
    smp_router,
    x25519,
)
from tocsin.crypto.boxes import box_key
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.pushes import Push, PushedNotification, parse_push_json
from tocsin.protocol.ntf.statuses import SubscriptionStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.smp.delivered_messages import NotificationMeta, unseal_meta
from tocsin.protocol.smp.queue_modes import NotifierKeys
from tocsin.protocol.smp.recipient_commands import SecureQueue
from tocsin.protocol.smp.responses import QueueCreated
from tocsin.push.apns.client import ApnsProvider
from tocsin.push.fake.server import FakeApns
from tocsin.push.settings import ApnsEndpoint, ApnsSettings
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore

StoreOpening: TypeAlias = Callable[[], AbstractAsyncContextManager[NtfStore]]
"""Opens a store, each time the same; closes it at the end, as a router that stops."""


def kept(store: NtfStore) -> StoreOpening:
    """A store that is one object, whatever happens to the router."""

    @asynccontextmanager
    async def opening() -> AsyncIterator[NtfStore]:
        yield store

    return opening


class ApnsPushes(RecordingProvider):
    """What a test asks of a `RecordingProvider`, told by what has reached devices through a fake APNs."""

    def __init__(self, apns: FakeApns) -> None:
        super().__init__()
        self._apns = apns

    async def next_push(self, device_token: bytes) -> Push:
        return parse_push_json((await self._apns.next_push(device_token)).payload)

    async def nothing(self, device_token: bytes) -> None:
        await self._apns.nothing(device_token)


@dataclass
class Chat:
    """A queue whose notifications a device is subscribed to."""

    address: NotifierQueue
    queue: Queue
    notifier: Notifier
    subscription_id: bytes = b""

    def meta(self, item: PushedNotification) -> NotificationMeta:
        """What a pushed notification says, which only the recipient can read."""
        assert item.queue == self.address
        return unseal_meta(box_key(self.notifier.secret), item.nonce, item.sealed_meta)

    async def send(self, sender: SmpTestClient, body: bytes = b"hello") -> None:
        assert await sender.send_message(self.queue, body, notify=True) == OK


async def chat_at(smp: SmpHarness, recipient: SmpTestClient, *, creds_in_new: bool = False) -> Chat:
    """A secured queue with notifications, whose credentials are made by NKEY or inside NEW."""
    if not creds_in_new:
        queue = await recipient.secured_queue()
        notifier = await recipient.enable_notifications(queue)
        return Chat(queue_at(smp, notifier), queue, notifier)
    key, dh_key, sender_key = ed25519(), x25519(), ed25519()
    notifier_key, notifier_dh_key = ed25519(), x25519()
    asked = NotifierKeys(notifier_key.public, notifier_dh_key.public)
    created = await recipient.expect(QueueCreated, create_command(key, dh_key, notifier=asked), key=key)
    queue = replace(opened(dh_key, key, created), sender_key=sender_key)
    assert await recipient.ask(SecureQueue(sender_key.public), queue.recipient_id, key) == OK
    ids = created.notifier
    assert ids is not None
    notifier = Notifier(ids.notifier_id, notifier_key, notifier_dh_key.agree(ids.dh_key))
    return Chat(queue_at(smp, notifier), queue, notifier)


async def becomes(device: Device, chat: Chat | bytes, status: SubscriptionStatus) -> None:
    """Waits until SCHK says so."""
    subscription_id = chat if isinstance(chat, bytes) else chat.subscription_id
    seen = None
    try:
        async with asyncio.timeout(PATIENCE):
            while (seen := await device.subscription_status(subscription_id)) != status:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"the status is still {seen}") from None


async def subscribed_chat(
    smp: SmpHarness, device: Device, recipient: SmpTestClient, status: SubscriptionStatus | None = None
) -> Chat:
    """A chat with a subscription of the device's, which gets this status if one is given."""
    chat = await chat_at(smp, recipient)
    chat.subscription_id = await device.subscribe(chat.address, chat.notifier.key)
    if status is not None:
        await becomes(device, chat, status)
    return chat


@dataclass
class World:
    """A fake APNs and a store, which outlive the routers that use them."""

    apns: FakeApns
    open_store: StoreOpening
    clock: HeldFineClock = field(default_factory=HeldFineClock)

    def __post_init__(self) -> None:
        self.pushes = ApnsPushes(self.apns)

    @asynccontextmanager
    async def ntf(self, **changes: Any) -> AsyncIterator[NtfHarness]:
        """An NTF router; the next one goes on with its store."""
        endpoint = ApnsEndpoint(self.apns.host, self.apns.port, self.apns.ca_file)
        settings = ApnsSettings(
            endpoints={"apns_test": endpoint}, connect_timeout=PATIENCE, request_timeout=PATIENCE
        )
        provider = ApnsProvider(endpoint, settings, None)
        try:
            async with (
                self.open_store() as store,
                ntf_router(
                    store,
                    provider=self.pushes,
                    providers={TEST_PROVIDER: provider, PushProvider.APNS_NULL: RecordingProvider()},
                    clock=self.clock,
                    apns=settings,
                    **changes,
                ) as ntf,
            ):
                yield ntf
        finally:
            await provider.close()


@dataclass
class SmpPlace:
    """An SMP router that stops and starts again at the same address."""

    store: SmpMemoryStore = field(default_factory=SmpMemoryStore)
    port: int = 0
    _kept: KeptPort = field(default_factory=KeptPort)

    @asynccontextmanager
    async def running(self, **changes: Any) -> AsyncIterator[SmpHarness]:
        defaults: dict[str, Any] = {"message_quota": 100, "drain_seconds": 0.1}
        try:
            async with smp_router(self.store, ports=(self.port,), **{**defaults, **changes}) as smp:
                self.port = smp.running.ports[0]
                self._kept.release()
                yield smp
        finally:
            self._kept.keep(self.port)


async def reconnected(device: Device, ntf: NtfHarness, version: int = 3) -> Device:
    """The same device at a router that was started again."""
    return replace(device, client=await ntf.connect(version))


def folder_of(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    return folder
