"""A whole delivery to kill: SMP and NTF router as processes, a fake push provider, devices and senders."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.doubles import slow_disk
from tests.doubles.ntf_harness import Device
from tests.doubles.ntf_process import NtfFolders, NtfProcess
from tests.doubles.routers import HOST
from tests.doubles.smp_harness import OK, Notifier, Queue, SmpTestClient
from tests.doubles.smp_process import SmpFolders, SmpProcess
from tocsin.crypto.boxes import box_key
from tocsin.errors import TransportError
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.pushes import MessagePush, Push, parse_push_json, unseal_notifications
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.smp.delivered_messages import unseal_meta
from tocsin.protocol.smp.queue_modes import SubscriptionMode
from tocsin.protocol.smp.responses import MessageReceived
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.push.fake.server import FakeApns, running_fake_apns

DEVICES, QUEUES_EACH = 3, 8
PATIENCE = 60.0


@dataclass
class Chat:
    """One queue, from its sender to the device that is notified of it."""

    queue: Queue
    notifier: Notifier
    device: Device
    subscription_id: bytes
    tried: int = 0
    answered: set[int] = field(default_factory=set)
    """The numbers in the messages whose SEND was answered."""
    places: dict[bytes, int] = field(default_factory=dict)
    """Places of messages in the queue, by message id, as the recipient got them."""
    newest_answered: int = 0
    """The place of the newest message whose SEND was answered. Two senders may store their messages in any order."""
    newest_notified: int = 0
    """The place of the newest message that the device was notified of."""


class Everything:
    """The three parts, and whoever uses them."""

    def __init__(
        self,
        folder: Path,
        ntf: dict[str, Any],
        smp: dict[str, Any] | None = None,
        *,
        slow_disks: bool = False,
    ) -> None:
        """`ntf` and `smp` are settings of the routers."""
        self._ntf_settings = ntf
        self._smp_settings = smp or {}
        self._smp_folders = SmpFolders(folder / "smp")
        self._ntf_folders = NtfFolders(folder / "ntf")
        if slow_disks:
            self._smp_folders.program = self._ntf_folders.program = (sys.executable, "-m", slow_disk.__name__)
        self._apns_folder = folder / "apns"
        self._stack = AsyncExitStack()
        self.smp: SmpProcess | None = None
        self.ntf: NtfProcess | None = None
        self.apns: FakeApns | None = None
        self._smp_port = self._ntf_port = 0
        self._read = 0
        self._told: dict[bytes, Chat] = {}
        """Messages that pushes announced, by message id, until their places are known."""
        self.chats: list[Chat] = []
        self.unreachable: set[bytes] = set()
        """Device tokens that a provider refuses for good: no test waits for their pushes."""
        self.kills: dict[str, int] = {"smp": 0, "ntf": 0, "apns": 0}

    async def start(self) -> None:
        self.apns = await self._stack.enter_async_context(running_fake_apns(self._apns_folder))
        await self.start_smp()
        await self.start_ntf()

    async def stop(self) -> None:
        for process in (self.ntf, self.smp):
            if process is not None:
                await process.kill()
        await self._stack.aclose()

    async def start_smp(self) -> None:
        settings = {"message_quota": 100_000, "notification_interval": 0.02, **self._smp_settings}
        self.smp = await self._smp_folders.start(port=self._smp_port, **settings)
        self._smp_port = self.smp.port

    async def start_ntf(self) -> None:
        assert self.apns is not None
        settings: dict[str, Any] = {
            "port": self._ntf_port,
            "apns_test_host": "localhost",
            "apns_test_port": self.apns.port,
            "apns_test_ca_file": self.apns.ca_file,
            "apns_prod_host": "off",
            "apns_dev_host": "off",
            "allow_private_hosts": "on",
            "use_service_credentials": "on",
            "smp_reconnect_initial": 0.05,
            "smp_reconnect_maximum": 0.2,
            "retry_initial": 0.05,
            "retry_maximum": 0.5,
            **self._ntf_settings,
        }
        self.ntf = await self._ntf_folders.start(**settings)
        self._ntf_port = self.ntf.port

    async def kill(self, part: str) -> None:
        """Kills it and starts it again."""
        assert self.smp is not None
        assert self.ntf is not None
        assert self.apns is not None
        self.kills[part] += 1
        if part == "smp":
            await self.smp.kill()
            await self.start_smp()
        elif part == "ntf":
            await self.ntf.kill()
            await self.start_ntf()
        else:
            self.apns.refuse_connections()
            self.apns.close_connections()
            await asyncio.sleep(0.1)
            await self.apns.listen()

    # Users

    async def register(self) -> None:
        assert self.smp is not None
        assert self.ntf is not None
        location = RouterLocation((HOST,), str(self._smp_port), self._smp_folders.fingerprint)
        recipient = await self.smp.connect()
        for number in range(DEVICES):
            provider: Any = PushesOf(self)
            device = Device(await self.ntf.connect(), provider, b"device%d" % number)
            await device.activate()
            for _ in range(QUEUES_EACH):
                queue = await recipient.secured_queue(subscription=SubscriptionMode.CREATE_ONLY)
                notifier = await recipient.enable_notifications(queue)
                where = NotifierQueue(location, notifier.notifier_id)
                subscription_id = await device.subscribe(where, notifier.key)
                self.chats.append(Chat(queue, notifier, device, subscription_id))

    async def traffic(self, chance: random.Random) -> None:
        """Sends until it is cancelled, and retries while a router is down."""
        while True:
            with suppress(TransportError, TimeoutError):
                assert self.smp is not None
                sender = await self.smp.connect()
                while True:
                    await self._send(sender, chance.choice(self.chats))
            await asyncio.sleep(0.02)

    async def _send(self, sender: SmpTestClient, chat: Chat) -> None:
        chat.tried += 1
        number = chat.tried
        command = SendMessage(MessageFlags(notify=True), b"%d" % number)
        if await sender.ask(command, chat.queue.sender_id, chat.queue.sender_key) == OK:
            chat.answered.add(number)

    # Comparison

    async def compare(self, patience: float | None = None) -> None:
        """Waits until every device is notified and the accounting adds up. Default: `PATIENCE` seconds."""
        try:
            async with asyncio.timeout(PATIENCE if patience is None else patience):
                while not await self._all_told():  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
        except TimeoutError:
            missing = f"(answered, notified): {self._missing()}; {await self.accounting()}"
            raise AssertionError(missing) from None
        accounting = await self.accounting()
        assert accounting["difference"] == 0, accounting

    async def _all_told(self) -> bool:
        await self._fetch()
        self._read_pushes()
        accounting = await self.accounting()
        assert accounting["difference"] == 0, accounting
        return not self._missing()

    def _missing(self) -> list[tuple[int, int]]:
        """Places of the newest messages that were answered, and of those that devices were notified of."""
        return [
            (chat.newest_answered, chat.newest_notified)
            for chat in self.chats
            if chat.newest_notified < chat.newest_answered
            and chat.device.device_token not in self.unreachable
        ]

    async def _fetch(self) -> None:
        """The recipients' side: message ids and contents."""
        assert self.smp is not None
        recipient = await self.smp.connect()
        for chat in self.chats:
            while isinstance(message := await recipient.get(chat.queue), MessageReceived):
                place = chat.places.setdefault(message.message_id, len(chat.places) + 1)
                if int(chat.queue.body(message)) in chat.answered:
                    chat.newest_answered = place
                assert await recipient.acknowledge(chat.queue, message) == OK
        await recipient.close()

    def _read_pushes(self) -> None:
        assert self.apns is not None
        by_id = {chat.notifier.notifier_id: chat for chat in self.chats}
        while self._read < len(self.apns.pushes):
            recorded = self.apns.pushes[self._read]
            push = parse_push_json(recorded.payload)
            self._read += 1
            if not isinstance(push, MessagePush):
                continue
            for chat in self.chats:
                if chat.device.device_token == recorded.device_token:
                    break
            for item in unseal_notifications(chat.device.secret, push):
                if (told := by_id.get(item.queue.notifier_id)) is None:
                    continue  # of a queue that a test has given up
                meta = unseal_meta(box_key(told.notifier.secret), item.nonce, item.sealed_meta)
                self._told.setdefault(meta.message_id, told)
        for message_id, told in list(self._told.items()):
            if message_id in told.places:
                told.newest_notified = max(told.newest_notified, told.places[message_id])
                del self._told[message_id]

    async def accounting(self) -> dict[str, float]:
        return await self.ntf_metrics("accounting_")

    async def ntf_metrics(self, prefix: str) -> dict[str, float]:
        """Those of the NTF router whose name begins so, by the rest of the name."""
        assert self.ntf is not None
        _, metrics = await self.ntf.get("/metrics")
        found = {}
        for line in metrics.splitlines():
            if line.startswith(f"simplex_ntf_{prefix}"):
                name, value = line.removeprefix(f"simplex_ntf_{prefix}").split(" ")[:2]
                found[name] = float(value)
        return found


class PushesOf:
    """A provider double for devices, backed by the fake service."""

    def __init__(self, everything: Everything) -> None:
        self._everything = everything

    async def next_push(self, device_token: bytes) -> Push:
        assert self._everything.apns is not None
        return parse_push_json((await self._everything.apns.next_push(device_token)).payload)


@asynccontextmanager
async def everything(
    folder: Path, ntf: dict[str, Any], smp: dict[str, Any] | None = None, *, slow_disks: bool = False
) -> AsyncIterator[Everything]:
    """Starts everything with devices and queues, and kills it at the end."""
    parts = Everything(folder, ntf, smp, slow_disks=slow_disks)
    try:
        await parts.start()
        await parts.register()
        yield parts
    finally:
        await parts.stop()
