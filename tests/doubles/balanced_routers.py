"""Two instances of a fleet behind a TCP balancer, which look like one NTF router to devices and to tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tests.doubles.ntf_harness import TEST_PROVIDER, NtfHarness, ntf_router, until
from tests.doubles.ntf_world import World
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.routers import HOST
from tests.doubles.smp_harness import PATIENCE, router_credentials
from tocsin.ntf_router.fleet.fleet import Fleet
from tocsin.ntf_router.store.postgres.fences import SHARDS
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.apns.client import ApnsProvider
from tocsin.push.settings import ApnsEndpoint, ApnsSettings

LEASE: Final = 3.0
_POOL: Final = 3


Target: TypeAlias = tuple[str, int]


class Balancer:
    """Gives each new connection to the next of the targets that there are at the moment."""

    def __init__(self, targets: Callable[[], Sequence[Target]]) -> None:
        self._targets = targets
        self._next = 0
        self._writers: dict[asyncio.StreamWriter, Target] = {}
        self.port = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Balancer]:
        server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in list(self._writers):
                writer.transport.abort()

    def drop(self, target: Target) -> None:
        """End the connections to a target, as a balancer does that has found it to be down."""
        for writer in [each for each, to in self._writers.items() if to == target]:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._next += 1
        targets = self._targets()
        target = targets[self._next % len(targets)]
        try:
            there, back = await asyncio.open_connection(*target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer: target, back: target}
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pass(reader, back))
                tasks.create_task(_pass(there, writer))
        finally:
            for each in (writer, back):
                self._writers.pop(each, None)
                each.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.write_eof()


@dataclass
class BalancedHarness(NtfHarness):
    """What tests ask of one router. `running` and `store` are those of the first instance."""

    instances: list[NtfHarness] = field(default_factory=list)
    port: int = 0

    @property
    def location(self) -> RouterLocation:
        return RouterLocation((HOST,), str(self.port), self.credentials.fingerprint)

    async def subscribed_queues(self, count: int) -> None:
        await until(
            lambda: sum(each.running.state.counters.queues_subscribed for each in self.instances) >= count
        )


@dataclass
class BalancedWorld(World):
    """`ntf` starts two instances and a balancer."""

    url: str = ""
    schema: str = "ntf_server"

    @asynccontextmanager
    async def ntf(self, **changes: Any) -> AsyncIterator[NtfHarness]:
        endpoint = ApnsEndpoint(self.apns.host, self.apns.port, self.apns.ca_file)
        settings = ApnsSettings(
            endpoints={"apns_test": endpoint}, connect_timeout=PATIENCE, request_timeout=PATIENCE
        )
        changes.setdefault("credentials", router_credentials())
        async with AsyncExitStack() as stack:
            instances = []
            for _ in range(2):
                provider = ApnsProvider(endpoint, settings, None)
                stack.push_async_callback(provider.close)
                store = await open_ntf_postgres_store(
                    self.url, self.schema, _POOL, alone=True, lease_seconds=LEASE
                )
                stack.push_async_callback(store.close)
                router = ntf_router(
                    store,
                    provider=self.pushes,
                    providers={TEST_PROVIDER: provider, PushProvider.APNS_NULL: RecordingProvider()},
                    clock=self.clock,
                    apns=settings,
                    fleet=True,
                    fleet_lease=LEASE,
                    database_url=self.url,
                    database_schema=self.schema,
                    **changes,
                )
                instances.append(await stack.enter_async_context(router))
            await _until_shared(instances)
            targets = [(HOST, each.running.ports[0]) for each in instances]
            balancer = await stack.enter_async_context(Balancer(lambda: targets).running())
            first = instances[0]
            harness = BalancedHarness(
                first.running,
                first.credentials,
                first.store,
                self.pushes,
                self.clock,
                instances=instances,
                port=balancer.port,
            )
            yield harness
            for client in harness.clients:
                await client.close()


async def _until_shared(instances: list[NtfHarness]) -> None:
    async with asyncio.timeout(PATIENCE):
        for each in instances:
            fleet = each.running.fleet
            assert fleet is not None
            while _shards(fleet) != SHARDS // len(instances):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)


def _shards(fleet: Fleet) -> int:
    return sum(name.startswith("push") for name in fleet.leases.held)
