"""The processes under load: an SMP router, an NTF router and a slow push provider, with honest users.

Routers run as `tocsin smp start` and `tocsin ntf start` in separate processes, so that their memory is theirs alone.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tocsin.clients.ntf_client import NtfClient
from tocsin.clients.smp_client import SmpClient
from tocsin.crypto.boxes import box_key
from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey
from tocsin.errors import TocsinError
from tocsin.lab.processes import HOST, LabRouter, ports_of
from tocsin.operate.http_client import get_page
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import VerificationPush, parse_push_json, unseal_code
from tocsin.protocol.ntf.subscription_commands import NotifierQueue, SubscribeToQueue
from tocsin.protocol.ntf.token_commands import RegisterToken
from tocsin.protocol.smp.queue_modes import NotifierKeys, SubscriptionMode
from tocsin.protocol.smp.recipient_commands import CreateQueue
from tocsin.protocol.smp.responses import MessageReceived
from tocsin.push.fake.behaviours import Delay
from tocsin.push.fake.server import FakeApns, running_fake_apns

PATIENCE: Final = 60.0
PROVIDER_SECONDS: Final = 0.1
PROVIDER_STREAMS: Final = 2
"""So that four connections take 80 pushes a second."""
_METRIC: Final = re.compile(r"^(\w+)(\{[^}]*\})? ([0-9.e+-]+)$", re.MULTILINE)


@dataclass
class Device:
    """A verified token."""

    device_token: bytes
    token_id: bytes
    key: Ed25519PrivateKey


@dataclass
class World:
    smp: LabRouter
    ntf: LabRouter
    apns: FakeApns
    metrics_ports: dict[str, int]
    sender_ids: list[bytes] = field(default_factory=list)
    """Queues with notifications that anybody may send to."""
    recipient_ids: list[tuple[bytes, Ed25519PrivateKey]] = field(default_factory=list)

    @property
    def smp_address(self) -> RouterAddress:
        return self.smp.address

    @property
    def ntf_address(self) -> RouterAddress:
        return self.ntf.address

    def resident(self, router: str) -> int:
        """Bytes of memory of a router's process."""
        process = (self.smp if router == "smp" else self.ntf).process_id
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    async def metrics(self, router: str) -> dict[str, float]:
        """Values by name with labels. Raises OSError and TimeoutError."""
        _, text = await get_page(HOST, self.metrics_ports[router], "/metrics", PATIENCE)
        return {name + labels: float(value) for name, labels, value in _METRIC.findall(text)}

    async def register(self, client: NtfClient, device_token: bytes) -> Device:
        """TNEW, the code from a push, TVFY."""
        key, dh_key = Ed25519PrivateKey(os.urandom(32)), X25519PrivateKey(os.urandom(32))
        command = RegisterToken(DeviceToken(PushProvider.APNS_TEST, device_token), key.public, dh_key.public)
        registered = await client.register_token(command, key)
        secret = box_key(dh_key.agree(registered.dh_key))
        while True:
            push = parse_push_json((await self.apns.next_push(device_token, PATIENCE)).payload)
            if isinstance(push, VerificationPush):
                await client.verify_token(registered.token_id, unseal_code(secret, push), key)
                return Device(device_token, registered.token_id, key)


@asynccontextmanager
async def running_world(folder: Path) -> AsyncIterator[World]:
    ports = ports_of(folder)
    async with AsyncExitStack() as stack:
        apns = await stack.enter_async_context(running_fake_apns(folder / "push", port=ports.push, keep=1000))
        smp, ntf = LabRouter("smp", folder, ports.smp), LabRouter("ntf", folder, ports.ntf)
        stack.push_async_callback(smp.stop)
        await smp.serve(prometheus_port=ports.smp_metrics, control_port="off")
        stack.push_async_callback(ntf.stop)
        await ntf.serve(
            host=HOST,
            apns_test_host="localhost",
            apns_test_port=ports.push,
            apns_test_ca_file=apns.ca_file,
            apns_prod_host="off",
            apns_dev_host="off",
            allow_private_hosts="on",
            prometheus_port=ports.metrics,
            control_port="off",
        )
        world = World(smp, ntf, apns, {"smp": ports.smp_metrics, "ntf": ports.metrics})
        yield world


async def populate(world: World, tokens: int, queues_each: int) -> None:
    """Devices with subscriptions, then a provider that is slow from now on."""
    notifier_key, dh_key = Ed25519PrivateKey(os.urandom(32)), X25519PrivateKey(os.urandom(32))
    keys = NotifierKeys(notifier_key.public, dh_key.public)
    async with SmpClient.connect(world.smp_address) as smp, NtfClient.connect(world.ntf_address) as ntf:
        for number in range(tokens):
            device = await world.register(ntf, b"soak%d" % number)
            for _ in range(queues_each):
                key = Ed25519PrivateKey(os.urandom(32))
                created = await smp.create_queue(
                    CreateQueue(
                        key.public, dh_key.public, subscription=SubscriptionMode.CREATE_ONLY, notifier=keys
                    ),
                    key,
                )
                assert created.notifier is not None
                where = NotifierQueue(world.smp_address.location, created.notifier.notifier_id)
                await ntf.subscribe_to_queue(
                    SubscribeToQueue(device.token_id, where, notifier_key), device.key
                )
                world.sender_ids.append(created.sender_id)
                world.recipient_ids.append((created.recipient_id, key))
    async with asyncio.timeout(PATIENCE):
        while (await world.metrics("ntf"))["simplex_ntf_queues_subscribed"] < tokens * queues_each:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    world.apns.change_settings({3: PROVIDER_STREAMS})
    world.apns.behave(Delay(PROVIDER_SECONDS), times=None)


async def fetch_messages(world: World) -> None:
    """The recipient of all queues: takes messages, so that there is room for more. Goes on until it is cancelled."""
    while True:
        with suppress(TocsinError):
            async with SmpClient.connect(world.smp_address) as client:
                keys = dict(world.recipient_ids)
                for recipient_id, key in world.recipient_ids:
                    await client.subscribe(recipient_id, key)
                async for event in client.events():
                    message = event.response if isinstance(event.response, MessageReceived) else None
                    while message is not None:  # the answer to an ACK may bring the next one
                        key = keys[event.entity_id]
                        message = await client.acknowledge(event.entity_id, message.message_id, key)
        await asyncio.sleep(1.0)
