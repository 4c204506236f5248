"""A whole delivery with a fleet: several NTF routers on one PostgreSQL, SMP routers, a fake provider, devices.

Each SMP router is of another kind (`SMP_KINDS`), so that NTF routers subscribe in all ways that there are. A balancer
stands before the instances: devices and SMP routers with packets know only its address.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import asyncpg

from tests.doubles import jumping_clocks, watched_leases
from tests.doubles.balanced_routers import Balancer, Target
from tests.doubles.cut_paths import DatabasePath, NetworkPath, database_path, network_path
from tests.doubles.direct_devices import DirectDevice, told_key
from tests.doubles.jumping_clocks import ClockFile
from tests.doubles.ntf_harness import Device, NtfTestClient
from tests.doubles.ntf_process import NtfProcess
from tests.doubles.routers import HOST
from tests.doubles.smp_direct import DIRECT_ALPN, Wish
from tests.doubles.smp_harness import OK, Notifier, Queue, SmpTestClient
from tests.doubles.smp_process import SmpFolders, SmpProcess
from tests.doubles.whole_delivery import Chat, Everything, PushesOf
from tocsin.errors import TransportError
from tocsin.ntf_router.store.postgres.fences import router_lease
from tocsin.ntf_router.store.postgres.rows import NO_KEY
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.dialects import DIRECT_NTF
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.ntf.pushes import MessagePush, parse_push_json, unseal_notifications
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.smp.queue_modes import SubscriptionMode
from tocsin.protocol.smp.responses import MessageReceived
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage

SERVICES, DIRECT, PLAIN = range(3)
SMP_KINDS: Final[tuple[dict[str, Any], ...]] = (
    {"direct_notifications": "off"},
    {
        "direct_public_ntf_routers_only": "off",
        "direct_connect_timeout": 2,
        "direct_response_timeout": 2,
        "direct_retry_initial": 0.1,
        "direct_retry_maximum": 0.5,
    },
    {"direct_notifications": "off", "accept_service_credentials": "off"},
)
"""Settings of the SMP routers: NTF routers subscribe to all queues by NSUBS, by NSSUB, and to each by NSUB."""
SMP_ROUTERS: Final = len(SMP_KINDS)
DEVICES: Final = 6
QUEUES_EACH: Final = 6
START_SECONDS: Final = 60.0
WAYS: Final = {SERVICES: {(True, True)}, DIRECT: {(True, True), (True, False)}, PLAIN: {(False, True)}}
"""How queues are subscribed at these SMP routers: by a service, and with a key."""
PROBE_SECONDS: Final = 0.05
LAST_LINES: Final = 60
"""Of a log, to be shown when something is wrong."""

_WAYS: Final = f"""
    SELECT DISTINCT v.smp_port, s.ntf_service_assoc AS by_service,
        s.smp_notifier_key <> '\\x{NO_KEY.hex()}'::bytea AS has_key
    FROM ntf_server.subscriptions s JOIN ntf_server.smp_servers v ON v.smp_server_id = s.smp_server_id
    WHERE s.status IN ('ACTIVE', 'INACTIVE')
"""  # noqa: S608
_HOLDER: Final = """
    SELECT i.name FROM ntf_server_tocsin.fleet_leases l
    JOIN ntf_server_tocsin.fleet_instances i ON i.number = l.holder WHERE l.name = $1
"""


class Instance:
    """One place of the fleet: its ways to the database and to SMP routers, its address, clocks, and process."""

    def __init__(
        self,
        path: DatabasePath,
        network: NetworkPath,
        target: Target,
        clocks: ClockFile,
        source: Path | None,
    ) -> None:
        self.path: Final = path
        self.network: Final = network
        self.target: Final = target
        self.clocks: Final = clocks
        self.source: Final = source
        """The folder of the package of another release."""
        self.process: NtfProcess | None = None
        self.stopped = True
        """It was not started, stands still, or cannot reach the database."""

    @property
    def running(self) -> NtfProcess:
        assert self.process is not None
        return self.process


class FleetDelivery(Everything):
    """`instances` are the NTF routers. `smp` is the first SMP router."""

    def __init__(
        self,
        folder: Path,
        url: str,
        *,
        size: int,
        lease: float,
        source: Path | None = None,
        cut_networks: bool = False,
    ) -> None:
        super().__init__(folder, {})
        self._url = url
        self._size = size
        self._lease = lease
        self._source = source
        self._cut_networks = cut_networks
        self._smps = [SmpFolders(folder / f"smp-{number}") for number in range(SMP_ROUTERS)]
        self._smp_ports = [0] * SMP_ROUTERS
        self.smps: list[SmpProcess] = []
        self._router_of: dict[int, int] = {}
        """The SMP router of each chat, by the chat's identity."""
        self._ntf_folders.program = (sys.executable, "-m", watched_leases.__name__)
        self._ntf_folders.start_seconds = START_SECONDS
        self.notes: Final = folder / "leases"
        self._logs = folder
        self._balancer = Balancer(lambda: [each.target for each in self.well])
        self.instances: list[Instance] = []
        self.probes: list[tuple[float, Chat]] = []
        """When each was sent, and to which chat."""

    async def start(self) -> None:
        await self._stack.enter_async_context(self._balancer.running())
        for _ in range(self._size):
            await self.add_place(self._source)
        await super().start()

    async def add_place(self, source: Path | None = None) -> int:
        """Add a place for an instance, of another release if `source` is given. Returns its number."""
        number = len(self.instances)
        path = await self._stack.enter_async_context(database_path(self._url))
        network = await self._stack.enter_async_context(network_path())
        # The instances know one address and one port, as on several machines.
        target = f"127.0.0.{number + 2}", self._balancer.port
        clocks = ClockFile(self._logs / f"clocks-{number}")
        self.instances.append(Instance(path, network, target, clocks, source))
        return number

    async def start_smp(self) -> None:
        self.smps = [await self._start_smp(number) for number in range(SMP_ROUTERS)]
        self.smp = self.smps[0]

    async def _start_smp(self, number: int) -> SmpProcess:
        smp = await self._smps[number].start(
            port=self._smp_ports[number],
            message_quota=100_000,
            notification_interval=0.02,
            **SMP_KINDS[number],
        )
        self._smp_ports[number] = smp.port
        return smp

    async def kill_smp(self, number: int) -> None:
        await self.smps[number].kill()
        self.smps[number] = await self._start_smp(number)

    async def start_ntf(self) -> None:
        await self.start_instances(range(self._size))

    async def start_instances(self, numbers: Iterable[int]) -> None:
        await asyncio.gather(*(self.start_instance(number) for number in numbers))

    async def start_instance(self, number: int) -> None:
        assert self.apns is not None
        instance = self.instances[number]
        listen, port = instance.target
        settings: dict[str, Any] = {
            "listen": listen,
            "port": port,
            "smp_connect_timeout": 2,
            "smp_response_timeout": 5,
            "smp_ping_after": 2,
            "store": "url",
            "store_path": str(self._logs / f"instance-{number}"),
            "db_connection": instance.path.url,
            "db_pool_size": 3,
            "fleet": "on",
            "fleet_lease": self._lease,
            "fleet_patience": 1,
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
        }
        self._ntf_folders.variables = {
            watched_leases.VARIABLE: str(self.notes),
            jumping_clocks.VARIABLE: str(instance.clocks.path),
        }
        if self._cut_networks:
            settings |= {"socks_proxy": f"{HOST}:{instance.network.port}", "socks_mode": "always"}
        if instance.source is not None:
            self._ntf_folders.variables = {**self._ntf_folders.variables, "PYTHONPATH": str(instance.source)}
            del settings["fleet_patience"]  # only newer ones know it
        if instance.process is not None:
            self._keep_log(number)
        instance.process = await self._ntf_folders.start(**settings)
        instance.stopped = False
        self.ntf = instance.process

    async def stop(self) -> None:
        for number, instance in enumerate(self.instances):
            if instance.process is not None:
                with suppress(ProcessLookupError):
                    os.kill(instance.process.process_id, signal.SIGCONT)
                await instance.process.kill()
                self._keep_log(number)
        for smp in self.smps:
            await smp.kill()
        self.ntf = self.smp = None
        await self._stack.aclose()

    def _keep_log(self, number: int) -> None:
        """Append what an instance said to a file beside its folder, for whoever looks for the cause of a failure."""
        with (self._logs / f"instance-{number}.log").open("a") as log:
            log.writelines(self.instances[number].running.output)

    # Faults

    @property
    def well(self) -> list[Instance]:
        return [each for each in self.instances if not each.stopped]

    def _mark_down(self, number: int) -> None:
        """Let nobody use an instance, as a balancer that has asked for its health."""
        self.instances[number].stopped = True
        self._balancer.drop(self.instances[number].target)
        self.ntf = self.well[0].running

    async def kill_instance(self, number: int) -> None:
        """Kill it, without a restart."""
        self._mark_down(number)
        await self.instances[number].running.kill()

    def freeze(self, number: int) -> None:
        self._mark_down(number)
        os.kill(self.instances[number].running.process_id, signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        os.kill(self.instances[number].running.process_id, signal.SIGCONT)
        self.instances[number].stopped = False

    def cut(self, number: int, *, silently: bool) -> None:
        """Cut an instance from the database: its packets vanish, or its connections break and no new one is made."""
        self._mark_down(number)
        self.instances[number].path.hold()
        if not silently:
            self.instances[number].path.break_connections()

    def join(self, number: int) -> None:
        self.instances[number].path.let_go()
        self.instances[number].stopped = False

    def cut_network(self, number: int, *, silently: bool) -> None:
        """Cut an instance from all SMP routers: connections break and new ones are refused.

        Silently means that packets vanish on the connection to the SMP router that waits for acknowledgements.
        """
        network = self.instances[number].network
        if silently:
            network.hold_only(self._smp_ports[DIRECT])
        else:
            network.refusing = True
            network.break_connections()

    def join_network(self, number: int) -> None:
        self.instances[number].network.refusing = False
        self.instances[number].network.let_go()

    async def restart(self, number: int) -> None:
        """Stop it in order, and start it again."""
        await self.end_instance(number)
        await self.start_instance(number)

    async def end_instance(self, number: int) -> None:
        """Stop it in order."""
        self._mark_down(number)
        process = self.instances[number].running
        try:
            code = await process.stop()
        except TimeoutError:
            raise AssertionError("".join(["it does not stop:\n", *process.output[-LAST_LINES:]])) from None
        assert code == 0, process.output

    # Users

    async def client(self, chance: random.Random) -> NtfTestClient:
        """Of any instance that is well, as a balancer chooses one."""
        return await chance.choice(self.well).running.connect(alpn=(DIRECT_NTF.alpn,))

    async def register(self) -> None:
        chance = random.Random(0)
        for number in range(DEVICES):
            provider: Any = PushesOf(self)
            device = Device(await self.client(chance), provider, b"device%d" % number)
            await device.activate()
            for place in range(QUEUES_EACH):
                await self.add_chat(device, place % SMP_ROUTERS, chance)
            await device.client.close()

    async def add_chat(self, device: Device, number: int, chance: random.Random) -> None:
        """Add a queue of a device at an SMP router. Any instance gets its SNEW, or the packet of its NSKEY."""
        recipient = await self.smps[number].connect(alpn=DIRECT_ALPN if number == DIRECT else None)
        queue = await recipient.secured_queue(subscription=SubscriptionMode.CREATE_ONLY)
        location = RouterLocation((HOST,), str(self._smp_ports[number]), self._smps[number].fingerprint)
        device.client = await self.client(chance)
        subscription_id = b""
        if number == DIRECT and len(self.chats) % 2:
            notifier = await self._associated(device, location, recipient, queue)
        else:
            notifier = await recipient.enable_notifications(queue)
            subscription_id = await device.subscribe(
                NotifierQueue(location, notifier.notifier_id), notifier.key
            )
        await device.client.close()
        await recipient.close()
        chat = Chat(queue, notifier, device, subscription_id)
        self.chats.append(chat)
        self._router_of[id(chat)] = number

    async def _associated(
        self, device: Device, smp: RouterLocation, recipient: SmpTestClient, queue: Queue
    ) -> Notifier:
        """NSKEY, with the key that an instance tells. The packet goes to another one, at once or later."""
        identity = self._ntf_folders.fingerprint
        wish = Wish(RouterLocation((HOST,), str(self._balancer.port), identity))
        direct = DirectDevice(device, await told_key(device), identity)
        wish.packet = direct.packet(NotifierQueue(smp, wish.notifier_id))
        notifier, fate = await wish.associate(recipient, queue)
        assert fate in (PacketFate.ACCEPTED, PacketFate.PENDING), fate
        return notifier

    async def traffic(self, chance: random.Random, pause: float = 0.01) -> None:
        """Send with pauses of up to so many seconds, because the machine has few cores."""
        while True:
            number = chance.randrange(SMP_ROUTERS)
            with suppress(TransportError, TimeoutError):
                sender = await self.smps[number].connect()
                for _ in range(chance.randrange(1, 50)):
                    chats = [each for each in self.chats if self._router_of[id(each)] == number]
                    await self._send(sender, chance.choice(chats))
                    await asyncio.sleep(chance.uniform(0, pause))
                await sender.close()
            await asyncio.sleep(0.02)

    async def probe(self) -> None:
        """Send to one chat after the other, slowly enough that each message gets a push of its own."""
        senders = [await smp.connect() for smp in self.smps]
        while True:
            for chat in self.chats:
                chat.tried += 1
                text = b"%d" % chat.tried
                command = SendMessage(MessageFlags(notify=True), text)
                sender = senders[self._router_of[id(chat)]]
                self.probes.append((time.time(), chat))
                assert await sender.ask(command, chat.queue.sender_id, chat.queue.sender_key) == OK
                chat.answered.add(chat.tried)
                await asyncio.sleep(PROBE_SECONDS)

    def waits(self) -> list[float]:
        """Seconds from each probe to the first push of its chat's device afterwards with its queue's notification."""
        assert self.apns is not None
        arrived: dict[bytes, list[float]] = {}
        seen: set[bytes] = set()
        secrets = {chat.device.device_token: chat.device.secret for chat in self.chats}
        for push in self.apns.pushes:
            contents = parse_push_json(push.payload)
            if push.status != 200 or not isinstance(contents, MessagePush):
                continue
            for item in unseal_notifications(secrets[push.device_token], contents):
                if item.nonce not in seen:  # a push repeats earlier ones
                    seen.add(item.nonce)
                    arrived.setdefault(item.queue.notifier_id, []).append(push.received_at)
        sent: dict[bytes, list[float]] = {}
        for at, chat in self.probes:
            sent.setdefault(chat.notifier.notifier_id, []).append(at)
        return [
            came - at
            for notifier_id, times in sent.items()
            for at, came in zip(times, arrived.get(notifier_id, []), strict=False)
        ]

    async def until_shared(self) -> None:
        """Wait until all leases have a holder, and each instance has some."""
        for each in self.well:
            try:
                async with asyncio.timeout(START_SECONDS):
                    while not await _has_share(each.running):  # noqa: ASYNC110 - nobody tells
                        await asyncio.sleep(0.1)
            except TimeoutError:
                lines = [line for line in await _metrics(each.running) if "_fleet_leases" in line]
                raise AssertionError(lines) from None

    async def holder_of(self, smp: int) -> int:
        """Return the instance that has an SMP router, when there is one."""
        lease = router_lease(RouterLocation((HOST,), "", self._smps[smp].fingerprint))
        connection = await asyncpg.connect(self._url)
        try:
            async with asyncio.timeout(START_SECONDS):
                while (name := await connection.fetchval(_HOLDER, lease)) is None:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.1)
        finally:
            await connection.close()
        process = int(name.rpartition(" ")[2])
        return [each.process and each.process.process_id for each in self.instances].index(process)

    async def until_handed_over(self, number: int) -> None:
        """Wait until others have all SMP routers of an instance."""
        async with asyncio.timeout(START_SECONDS):
            while number in [await self.holder_of(smp) for smp in range(SMP_ROUTERS)]:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)

    def said(self, *words: str) -> list[str]:
        """Lines of the instances' logs with one of these."""
        lines = [line for each in self.instances if each.process for line in each.process.output]
        return [line for line in lines if any(word in line for word in words)]

    async def _fetch(self) -> None:
        for number, smp in enumerate(self.smps):
            recipient = await smp.connect()
            for chat in [each for each in self.chats if self._router_of[id(each)] == number]:
                while isinstance(message := await recipient.get(chat.queue), MessageReceived):
                    place = chat.places.setdefault(message.message_id, len(chat.places) + 1)
                    if int(chat.queue.body(message)) in chat.answered:
                        chat.newest_answered = place
                    assert await recipient.acknowledge(chat.queue, message) == OK
            await recipient.close()

    # What must be true

    async def ways(self) -> dict[int, set[tuple[bool, bool]]]:
        """Return how queues of each SMP router are subscribed: by a service, and with a key."""
        connection = await asyncpg.connect(self._url)
        try:
            rows = await connection.fetch(_WAYS)
        finally:
            await connection.close()
        ways: dict[int, set[tuple[bool, bool]]] = {}
        for row in rows:
            number = self._smp_ports.index(int(row["smp_port"]))
            ways.setdefault(number, set()).add((row["by_service"], row["has_key"]))
        return ways

    def pushed_most_often(self) -> int:
        """How often the same notifications were pushed to one device with success, at most."""
        assert self.apns is not None
        accepted = [push.header(b"apns-id") for push in self.apns.pushes if push.status == 200]
        return max(Counter(accepted).values(), default=0)


async def _metrics(process: NtfProcess) -> list[str]:
    return (await process.get("/metrics"))[1].splitlines()


async def _has_share(process: NtfProcess) -> bool:
    lines = await _metrics(process)
    free, none = "simplex_ntf_fleet_leases_free 0", 'simplex_ntf_fleet_leases{kind="push"} 0'
    return free in lines and none not in lines


@asynccontextmanager
async def fleet_delivery(
    folder: Path,
    url: str,
    *,
    size: int = 3,
    lease: float = 3.0,
    source: Path | None = None,
    cut_networks: bool = False,
) -> AsyncIterator[FleetDelivery]:
    """A running fleet. `source` is the folder of the package of another release, if it is to run that one.

    With `cut_networks`, instances reach SMP routers on a way that can be cut. SMP routers that know no acknowledgements
    can then not tell what an instance has read, because something else stands between the two.
    """
    parts = FleetDelivery(folder, url, size=size, lease=lease, source=source, cut_networks=cut_networks)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(parts.stop)
        await parts.start()
        await parts.register()
        yield parts
