"""Agents between routers that are processes of their own, to be killed, and a fake APNs."""

from __future__ import annotations

import asyncio
import shutil
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from tests.doubles.agent_harness import (
    CURRENT_CLIENT,
    ClientVersions,
    RunningAgent,
    running_agent,
    smp_address,
)
from tests.doubles.ntf_process import NtfFolders, NtfProcess
from tests.doubles.postgres_server import new_database
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.routers import HOST
from tests.doubles.smp_process import SmpFolders, SmpProcess
from tocsin.agent import ToFetch, TokenVerified, Unreadable, Woken
from tocsin.agent.runtime.events import ConnectionReady, MessageArrived
from tocsin.crypto.boxes import box_key
from tocsin.ntf_router.settings.files import NTF_FILE
from tocsin.ntf_router.store.logs.log_reading import STORE_LOG
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.pushes import MessagePush, parse_push_json, unseal_notifications
from tocsin.protocol.smp.delivered_messages import unseal_meta
from tocsin.push.fake.server import FakeApns, running_fake_apns
from tocsin.push.provider import PushRequest, Urgency
from tocsin.smp_router.settings.files import SMP_FILE

PATIENCE = 60.0


class SmpProcessPlace:
    """An SMP router that is killed and started at the same address, on the same files."""

    def __init__(self, folder: Path) -> None:
        self._folders = SmpFolders(folder)
        self._backup = folder / "backup"
        self._process: SmpProcess | None = None
        self._port = 0

    @property
    def location(self) -> RouterLocation:
        return RouterLocation((HOST,), str(self._port), self._folders.fingerprint)

    async def start(self, **settings: Any) -> None:
        self._process = await self._folders.start(port=self._port, notification_interval=0.02, **settings)
        self._port = self._process.port

    async def kill(self) -> None:
        if self._process is not None:
            await self._process.kill()
            self._process = None

    def back_up(self) -> None:
        """While it does not run; there is one backup."""
        shutil.copytree(self._folders.store, self._backup)

    def restore(self) -> None:
        shutil.rmtree(self._folders.store)
        shutil.copytree(self._backup, self._folders.store)

    async def tocsin(self, *words: object) -> str:
        """What `tocsin smp` with these words says, with the settings of the router."""
        config = ("--config", self._folders.config / SMP_FILE.ini_file)
        return await _tocsin("smp", *words, *config, env=self._folders.environment(port=self._port))


class NtfProcessPlace:
    """The same for an NTF router."""

    def __init__(self, folder: Path, apns: FakeApns, database: str | None) -> None:
        self._folders = NtfFolders(folder)
        self._apns = apns
        self._store = {} if database is None else {"db_connection": database, "db_schema": folder.name}
        self._backup = folder / "backup"
        self._process: NtfProcess | None = None
        self._port = 0

    def copy(self, source: Path, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)

    async def back_up(self) -> None:
        """While it does not run; there is one backup."""
        self.copy(self._folders.store, self._backup)
        if self._store:
            await self._copy_database(self._database, f"{self._database}_backup")

    async def restore(self) -> None:
        self.copy(self._backup, self._folders.store)
        if self._store:
            await self._copy_database(f"{self._database}_backup", self._database)

    @property
    def _database(self) -> str:
        return urlsplit(self._store["db_connection"]).path.removeprefix("/")

    async def _copy_database(self, source: str, target: str) -> None:
        server = await asyncpg.connect(self._store["db_connection"], database="postgres")
        try:
            await server.execute(f"DROP DATABASE IF EXISTS {target} WITH (FORCE)")
            await server.execute(f"CREATE DATABASE {target} TEMPLATE {source}")
        finally:
            await server.close()

    async def tocsin(self, *words: object) -> str:
        """What `tocsin ntf` with these words says, with the settings of the router."""
        config = ("--config", self._folders.config / NTF_FILE.ini_file)
        return await _tocsin("ntf", *words, *config, env=self._folders.environment(**self._store))

    @property
    def location(self) -> RouterLocation:
        return RouterLocation((HOST,), str(self._port), self._folders.fingerprint)

    async def start(self, **settings: Any) -> None:
        chosen: dict[str, Any] = {
            "port": self._port,
            "apns_test_host": "localhost",
            "apns_test_port": self._apns.port,
            "apns_test_ca_file": self._apns.ca_file,
            "apns_prod_host": "off",
            "apns_dev_host": "off",
            "allow_private_hosts": "on",
            "use_service_credentials": "on",
            "smp_reconnect_initial": 0.05,
            "smp_reconnect_maximum": 0.2,
            "retry_initial": 0.05,
            "retry_maximum": 0.5,
            **self._store,
            **settings,
        }
        self._process = await self._folders.start(**chosen)
        self._port = self._process.port

    async def kill(self) -> None:
        if self._process is not None:
            await self._process.kill()
            self._process = None

    async def until_subscribed(self, *, as_service: int, one_by_one: int) -> None:
        """To so many queues, in each of the two ways."""
        found = (-1, -1)
        try:
            async with asyncio.timeout(PATIENCE):
                while found != (as_service, one_by_one):
                    found = await self._subscribed()
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{found} are subscribed to, not {(as_service, one_by_one)}") from None

    async def until_all_active(self, count: int) -> None:
        """So many subscriptions are in its database, all of them active."""
        found: dict[str, int] = {}
        connection = await asyncpg.connect(self._store["db_connection"])
        try:
            async with asyncio.timeout(PATIENCE):
                while found != {"ACTIVE": count}:
                    rows = await connection.fetch(
                        f"SELECT status, count(*) FROM {self._store['db_schema']}.subscriptions GROUP BY status"  # noqa: S608
                    )
                    found = {row["status"]: row["count"] for row in rows}
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{found} and not {count} active ones") from None
        finally:
            await connection.close()

    async def until_logged(self, words: bytes) -> None:
        """These words are in the log of its store, which is in memory."""
        async with asyncio.timeout(PATIENCE):
            while words not in (self._folders.store / STORE_LOG).read_bytes():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)

    async def _subscribed(self) -> tuple[int, int]:
        assert self._process is not None
        _, text = await self._process.get("/metrics")
        values = dict(line.split(" ")[:2] for line in text.splitlines() if not line.startswith("#"))
        kinds = ("smp_service_subscription", "smp_subscription")
        service, one = (int(values[f"simplex_ntf_{kind}_active_sub_count_other"]) for kind in kinds)
        return service, one


async def _tocsin(*words: object, env: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tocsin", *map(str, words)), stdout=PIPE, stderr=STDOUT, env=env
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


class ApnsPushes(RecordingProvider):
    """What reached the devices of the fake service, as agents in tests read it."""

    def __init__(self, apns: FakeApns) -> None:
        super().__init__()
        self._apns = apns

    async def next_request(self, device_token: bytes) -> PushRequest:
        try:
            push = await self._apns.next_push(device_token, PATIENCE)
        except TimeoutError:
            asked = [each for each in self._apns.requests if each.device_token == device_token]
            answers = [each.status for each in asked]
            raise AssertionError(
                f"no push came within {PATIENCE:.0f} s; those before were answered with {answers}, "
                f"and {len(self._apns.sessions)} connections to the push service are open"
            ) from None
        return PushRequest(push.device_token, push.payload, Urgency.ALERT, "", 0)


class AgentWorld:
    """Routers as processes, Alice whose device is woken, and Bob who writes to her.

    The NTF routers keep what they know in PostgreSQL, or in logs if there is no database.
    """

    def __init__(self, folder: Path, apns: FakeApns, database: str | None) -> None:
        self._folder = folder
        self.apns = apns
        self.smp = [SmpProcessPlace(folder / f"smp{number}") for number in (1, 2)]
        self.ntf = [NtfProcessPlace(folder / f"ntf{number}", apns, database) for number in (1, 2)]
        self.told: set[bytes] = set()
        """Ids of messages that pushes told Alice of."""

    async def start(self, smp: int = 1, ntf: int = 1) -> None:
        """The first so many of each."""
        await asyncio.gather(
            *(each.start() for each in self.smp[:smp]), *(each.start() for each in self.ntf[:ntf])
        )

    def file(self, name: str) -> Path:
        """Of the agent of this name."""
        return self._folder / name

    async def kill(self) -> None:
        await asyncio.gather(*(each.kill() for each in self.smp), *(each.kill() for each in self.ntf))

    @asynccontextmanager
    async def alice(
        self,
        *ntf: NtfProcessPlace,
        device_token: bytes | None = None,
        name: str = "alice",
        clients: ClientVersions = CURRENT_CLIENT,
        **changes: Any,
    ) -> AsyncIterator[RunningAgent]:
        """Opens her file, each time the same; with another name it is that of another device."""
        async with running_agent(
            self.file(name),
            [self.smp[0].location],
            [each.location for each in ntf or self.ntf[:1]],
            ApnsPushes(self.apns),
            device_token=device_token,
            clients_of=clients,
            **changes,
        ) as alice:
            yield alice
            alice.no_trouble()

    @asynccontextmanager
    async def bob(self, clients: ClientVersions = CURRENT_CLIENT) -> AsyncIterator[RunningAgent]:
        async with running_agent(
            self.file("bob"), [self.smp[0].location], [], RecordingProvider(), clients_of=clients
        ) as bob:
            yield bob


@asynccontextmanager
async def agent_world(folder: Path, database_server: str | None) -> AsyncIterator[AgentWorld]:
    """Nothing of it runs yet but the push provider; at the end everything is killed.

    With a PostgreSQL server there is a database for the NTF routers, with a schema for each.
    """
    async with AsyncExitStack() as stack:
        database = None
        if database_server is not None:
            database = await stack.enter_async_context(new_database(database_server))
        apns = await stack.enter_async_context(running_fake_apns(folder / "apns"))
        world = AgentWorld(folder, apns, database)
        try:
            yield world
        finally:
            await world.kill()


async def connected(alice: RunningAgent, bob: RunningAgent, router: SmpProcessPlace) -> tuple[str, str]:
    """A connection with both queues at this router; its ids at each."""
    where = smp_address(router.location)
    invitation = await alice.agent.connections.create(router=where)
    joined = await bob.agent.connections.join(invitation.text, router=where)
    await alice.event(ConnectionReady, lambda event: event.connection_id == invitation.connection_id)
    await bob.event(ConnectionReady, lambda event: event.connection_id == joined)
    return invitation.connection_id, joined


async def notified(
    world: AgentWorld, alice: RunningAgent, names: Sequence[str], *, former_notifiers: bool = False
) -> dict[str, bytes]:
    """Reads pushes until each of these connections was in one with a message that no earlier push told of.

    With `former_notifiers` older items of the list may be of credentials that a queue had before, and codes of
    registrations may come again.
    """
    token = await alice.agent.tokens.current()
    assert token.secret is not None
    news: dict[str, bytes] = {}
    while not news.keys() >= set(names):
        payload = await alice.push()
        woken = await alice.agent.wake(payload)
        if former_notifiers and isinstance(woken, TokenVerified):
            continue
        assert isinstance(woken, Woken), woken
        assert all(each.reason is Unreadable.UNKNOWN_QUEUE for each in woken.unreadable)
        assert former_notifiers or not woken.unreadable
        push = parse_push_json(payload)
        assert isinstance(push, MessagePush)
        for item in unseal_notifications(box_key(token.secret), push):
            [queue] = await alice.store.notified_queues([item.queue])
            if queue is None:
                continue
            meta = unseal_meta(box_key(queue.secret), item.nonce, item.sealed_meta)
            if meta.message_id not in world.told:
                world.told.add(meta.message_id)
                news[queue.connection_id] = meta.message_id
    return news


async def pushed(
    world: AgentWorld,
    alice: RunningAgent,
    names: Sequence[str],
    body: bytes,
    *,
    former_notifiers: bool = False,
) -> None:
    """A message with this body in each of the connections wakes Alice, who fetches it and nothing else."""
    news = await notified(world, alice, names, former_notifiers=former_notifiers)
    for fetched in await alice.fetch([ToFetch(name, 1) for name in names]):
        assert fetched.failure is None
        [message] = fetched.messages
        assert isinstance(message, MessageArrived)
        assert (message.body, message.message_id) == (body, news[message.connection_id])


async def send(bob: RunningAgent, names: Sequence[str], body: bytes) -> None:
    for name in names:
        await bob.agent.connections.send(name, body)
