"""The world: two SMP routers and an NTF router as processes behind proxies, PostgreSQL, a push provider, and phones."""

from __future__ import annotations

import asyncio
import io
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from chaos import sick_router
from chaos.database import Database, running_database
from chaos.mailbox import Mailbox
from chaos.phones import ChaosPhone, connect
from chaos.proxy import HOST, FaultyProxy, running_proxy
from chaos.sick_router import Sickness
from tests.doubles.ntf_process import NtfFolders, NtfProcess
from tests.doubles.smp_process import SmpFolders, SmpProcess
from tests.doubles.web_push_service import WebPushService
from tocsin.agent import Agent, AgentSettings
from tocsin.agent.store.sqlite.store import opened_agent_store
from tocsin.cli.main import run
from tocsin.clients import Backoff, ClientSettings
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.push.fake.server import FakeApns, running_fake_apns
from tocsin.transport.client_sessions import DialSettings

AT_ONCE: Final = 10
"""Phones that are set up at a time."""
SCHEMA: Final = "chaos"
START_SECONDS: Final = 60.0
"""For the start of a router on a machine that has much else to do."""
WEB_PUSH_NAME: Final = "localhost"
WEB_PUSH_EVERY: Final = 3
"""Every third phone has a Web Push service instead of APNs."""
DAY: Final = 86_400


@dataclass
class RouterPlace:
    """A router that is killed and started at the same address."""

    name: str
    folders: SmpFolders | NtfFolders
    proxy: FaultyProxy
    settings: dict[str, Any]
    sickness: Sickness
    process: SmpProcess | NtfProcess | None = None
    lives: int = 0
    events_lost: int = 0
    """As the router counted them while its event log could not be written."""

    @property
    def location(self) -> RouterLocation:
        return RouterLocation((HOST,), str(self.proxy.port), self.folders.fingerprint)

    async def start(self) -> None:
        self.lives += 1
        self.process = await self.folders.start(port=self.proxy.target, **self.settings)
        self.proxy.target = self.process.port

    async def kill(self) -> None:
        """kill -9"""
        if self.process is not None:
            process, self.process = self.process, None
            await process.kill()

    async def metrics(self) -> str:
        """Return the page, however long it takes: a router that has just started may have much to do."""
        assert self.process is not None
        while True:
            try:
                _, text = await self.process.get("/metrics")
            except TimeoutError:
                continue
            return text

    async def lost_events(self) -> int:
        """Return how many events this process has lost, from its metrics."""
        text = await self.metrics()
        lines = [line.split(" ") for line in text.splitlines() if not line.startswith("#")]
        [value] = [value for name, value, *_ in lines if "events_lost" in name]
        return int(float(value))

    async def renew_certificate(self) -> None:
        """Replace the TLS certificate; the identity stays. It takes effect with a graceful restart."""
        kind = "smp" if isinstance(self.folders, SmpFolders) else "ntf"
        code = await asyncio.to_thread(run, [kind, "cert", "--folder", str(self.folders.config)])
        assert code == 0, f"tocsin {kind} cert ended with {code}"
        if self.process is not None:
            process, self.process = self.process, None
            await process.stop()
        await self.start()


@dataclass
class ChaosWorld:
    folder: Path
    smp: list[RouterPlace]
    ntf: RouterPlace
    database: Database
    apns: FakeApns
    web: WebPushService
    mailbox: Mailbox
    clock_base: float
    """Seconds by which the world is ahead of us. See `_until_noon`."""
    phones: list[ChaosPhone] = field(default_factory=list)
    tokens_lost: bool = False
    """Tokens were deleted, or refused by the provider: notifications may have come without an active token."""

    @property
    def routers(self) -> list[RouterPlace]:
        return [*self.smp, self.ntf]

    def events(self, router: str) -> Path:
        return self.folder / f"{router}-events"

    async def heal(self) -> None:
        """End every fault that lasts."""
        for router in self.routers:
            router.proxy.heal()
            router.sickness.clock_offset = self.clock_base
            router.sickness.disk_errors = 0, 0
            if router.process is None:
                await router.start()
        self.apns.script.clear()
        self.web.behaviours.clear()
        self.web.by_path.clear()

    def now(self) -> float:
        """The time of the world, which a router's clock may not show."""
        return time.time() + self.clock_base

    async def accounting(self) -> dict[str, float]:
        """Return the NTF router's accounting, from its metrics."""
        metrics = await self.ntf.metrics()
        prefix = "simplex_ntf_accounting_"
        lines = [
            line.removeprefix(prefix).split(" ") for line in metrics.splitlines() if line.startswith(prefix)
        ]
        return {name: float(value) for name, value, *_ in lines}


_SMP_SETTINGS: Final = {"message_quota": 100_000, "notification_interval": 0.05, "prometheus_port": 0}


def _ntf_settings(database: Database, apns: FakeApns, web: WebPushService) -> dict[str, Any]:
    return {
        "store": "url",
        "db_connection": database.url,
        "db_schema": SCHEMA,
        "apns_test_host": "localhost",
        "apns_test_port": apns.port,
        "apns_test_ca_file": apns.ca_file,
        "apns_prod_host": "off",
        "apns_dev_host": "off",
        "apns_request_timeout": 3,
        "webpush": "on",
        "webpush_ca_file": web.ca_file,
        "webpush_subject": "mailto:chaos@example.com",
        "webpush_rate": 1000,
        "webpush_timeout": 3,
        "allow_private_hosts": "on",
        "use_service_credentials": "on",
        "smp_reconnect_initial": 0.1,
        "smp_reconnect_maximum": 0.5,
        "smp_ping_after": 2,
        "smp_response_timeout": 3,
        "retry_initial": 0.05,
        "retry_maximum": 0.5,
    }


async def _place(
    stack: AsyncExitStack,
    folder: Path,
    name: str,
    folders: SmpFolders | NtfFolders,
    settings: dict[str, Any],
) -> RouterPlace:
    sickness = Sickness(folder / f"{name}-sickness")
    where = sickness.path, folders.store, folder / f"{name}-events"
    folders.program = (sys.executable, str(sick_router.__file__), *map(str, where))
    folders.start_seconds = START_SECONDS
    proxy = await stack.enter_async_context(running_proxy())
    return RouterPlace(name, folders, proxy, {**settings, **_event_settings(folder, name)}, sickness)


def _until_noon(now: float) -> float:
    """Return the seconds until tomorrow's noon (UTC), where the world's clocks begin.

    Pseudonyms of one notification differ before and after midnight. So that they can be compared, neither a run nor a
    jump of some hours may pass it. It is tomorrow because certificates are not valid before they were made.
    """
    return (now // DAY + 1) * DAY + DAY / 2 - now


def _event_settings(folder: Path, router: str) -> dict[str, Any]:
    return {
        "event_log": folder / f"{router}-events",
        "event_log_keys": folder / "keys",
        "event_log_segment_seconds": 3,
    }


@asynccontextmanager
async def chaos_world(folder: Path, phones: int) -> AsyncIterator[ChaosWorld]:
    """Start everything; every phone has an active token and a chat in which another phone writes to it."""
    async with AsyncExitStack() as stack:
        stack.enter_context(redirect_stdout(io.StringIO()))  # `tocsin smp init` and others tell what they did
        database = await stack.enter_async_context(running_database())
        apns = await stack.enter_async_context(running_fake_apns(folder / "apns"))
        web = await stack.enter_async_context(WebPushService(folder).running([WEB_PUSH_NAME]))
        world = ChaosWorld(
            folder,
            [
                await _place(stack, folder, name, SmpFolders(folder / name), _SMP_SETTINGS)
                for name in ("smp1", "smp2")
            ],
            await _place(
                stack, folder, "ntf", NtfFolders(folder / "ntf"), _ntf_settings(database, apns, web)
            ),
            database,
            apns,
            web,
            Mailbox(apns, web),
            _until_noon(time.time()),
        )
        for router in world.routers:
            router.sickness.clock_offset = world.clock_base
        for router in world.routers:
            stack.push_async_callback(router.kill)
        async with asyncio.TaskGroup() as group:  # if one does not start, the others end
            for router in world.routers:
                group.create_task(router.start())
        await _add_phones(world, stack, phones)
        yield world


async def _add_phones(world: ChaosWorld, stack: AsyncExitStack, count: int) -> None:
    executor = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="chaos-stores"))
    for number in range(count):
        path = world.folder / f"phone-{number}.db"
        store = await stack.enter_async_context(opened_agent_store(path, executor=executor))
        settings = _agent_settings(world, number)
        agent = await stack.enter_async_context(Agent(store, settings))
        by_web_push = number % WEB_PUSH_EVERY == WEB_PUSH_EVERY - 1
        world.phones.append(ChaosPhone(number, agent, store, world.mailbox, by_web_push))
    tasks = [
        asyncio.create_task(world.mailbox.run()),
        *(asyncio.create_task(phone.live()) for phone in world.phones),
    ]
    stack.push_async_callback(_cancel, tasks)
    gate = asyncio.Semaphore(AT_ONCE)

    async def set_up(phone: ChaosPhone) -> None:
        async with gate:
            await phone.become_active()

    # A phone is in two chats, so neighbours come one after the other.
    for number, phone in enumerate(world.phones):
        await connect(phone, world.phones[(number + 1) % count])
    await asyncio.gather(*(set_up(phone) for phone in world.phones))
    for phone in world.phones:
        await at_rest(phone)
        await phone.agent.connections.unsubscribe()


async def at_rest(phone: ChaosPhone) -> None:
    while not phone.agent.at_rest:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.05)


def _agent_settings(world: ChaosWorld, number: int) -> AgentSettings:
    smp = world.smp[number % len(world.smp)]
    return AgentSettings(
        smp_routers=(RouterAddress(Scheme.SMP, smp.location),),
        ntf_routers=(RouterAddress(Scheme.NTF, world.ntf.location),),
        retries=Backoff(initial=0.1, increase_after=1.0, maximum=1.0),
        remember_failure=0.05,
        clients=ClientSettings(
            dial=DialSettings(connect_timeout=5.0), response_timeout=5.0, close_seconds=0.5
        ),
    )


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
