"""`make bench-agent`: the cost of an agent: setting up notifications for many connections, and a wake.

python -m bench.agent              the whole table, a minute or two
python -m bench.agent --quick      a smoke run of a few seconds; its figures mean little

The agent and its store run in this process, the routers in another (`bench.agent_routers`), so that the CPU counted
here is the agent's own. Commands of the token itself (TVFY, TCRN) are among those that are counted at the NTF router.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import nacl.bindings as sodium

from bench.results import Result, show
from bench.wire import make_credentials
from tests.doubles.client_counters import ClientCounters
from tocsin.agent import Agent, AgentSettings, TokenVerified, Woken
from tocsin.agent.store.records import (
    AgentConnection,
    AgentToken,
    CheckDue,
    NotificationMode,
    QueueNotifier,
    ReceiveQueue,
)
from tocsin.agent.store.sqlite.store import AgentSqliteStore, opened_agent_store
from tocsin.clients import NtfClient, SmpClient
from tocsin.crypto.boxes import box_key
from tocsin.crypto.hsalsa20 import hsalsa20
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import PushedNotification, push_json, seal_notifications
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.smp.delivered_messages import NotificationMeta, seal_meta
from tocsin.transport.credential_files import write_credentials

ENTRIES: Final = 6
"""In a push: as many as an NTF router puts there."""
AT_ONCE: Final = 32
"""Connections that are made at a time: no app does more."""
_DEVICE: Final = DeviceToken(PushProvider.APNS_TEST, b"0123abcd")
_PUSH_BOX_BYTES: Final = 3072
_META_BOX_BYTES: Final = 128


# Setting up


@dataclass
class Counted:
    """What an agent sent, by protocol."""

    smp: ClientCounters = field(default_factory=ClientCounters)
    ntf: ClientCounters = field(default_factory=ClientCounters)

    def figures(self) -> tuple[int, int, int, int]:
        return self.smp.commands_sent, self.smp.blocks_sent, self.ntf.commands_sent, self.ntf.blocks_sent


class Routers:
    """The process around the agent."""

    def __init__(self, process: asyncio.subprocess.Process, credentials: bytes) -> None:
        self._process = process
        self._fingerprint = credentials
        self.smp = self.ntf = RouterAddress(Scheme.SMP, RouterLocation(("127.0.0.1",), "", credentials))

    async def start(self) -> None:
        ports = await self._line()
        self.smp = self._address(Scheme.SMP, ports["smp"])
        self.ntf = self._address(Scheme.NTF, ports["ntf"])

    async def push(self) -> bytes:
        """The payload of the next one."""
        return str((await self._line())["push"]).encode()

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return line

    def _address(self, scheme: Scheme, port: int) -> RouterAddress:
        return RouterAddress(scheme, RouterLocation(("127.0.0.1",), str(port), self._fingerprint))


@asynccontextmanager
async def running_routers(folder: Path) -> AsyncIterator[Routers]:
    credentials = make_credentials()
    write_credentials(folder, credentials)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.agent_routers",
        str(folder),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )
    try:
        routers = Routers(process, credentials.fingerprint)
        await routers.start()
        yield routers
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def counted_agent(
    path: Path, routers: Routers
) -> AsyncIterator[tuple[Agent, AgentSqliteStore, Counted]]:
    settings = AgentSettings(smp_routers=(routers.smp,), ntf_routers=(routers.ntf,))
    counted = Counted()
    async with (
        opened_agent_store(path) as store,
        Agent(
            store,
            settings,
            connect_smp=lambda where: SmpClient.connect(where, settings.clients, metrics=counted.smp),
            connect_ntf=lambda where: NtfClient.connect(where, settings.clients, metrics=counted.ntf),
        ) as agent,
    ):
        yield agent, store, counted


async def set_up(connections: int) -> list[Result]:
    """Of connections that were there before the token, and of connections that come after it."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with running_routers(folder) as routers:
            async with counted_agent(folder / "before.db", routers) as (agent, store, counted):
                what = f"{connections:,} connections without notifications"
                results += await _measured(what, connections, counted, lambda: _create(agent, connections))
                await _registered(agent)
                push = await routers.push()

                async def activate() -> None:
                    assert isinstance(await agent.wake(push), TokenVerified)
                    await _subscribed(agent, store, connections)

                what = f"notifications of {connections:,} connections"
                results += await _measured(what, connections, counted, activate)
            async with counted_agent(folder / "after.db", routers) as (agent, store, counted):
                await _registered(agent)
                assert isinstance(await agent.wake(await routers.push()), TokenVerified)

                async def create() -> None:
                    await _create(agent, connections)
                    await _subscribed(agent, store, connections)

                what = f"{connections:,} connections with notifications"
                results += await _measured(what, connections, counted, create)
    return results


async def _measured(
    what: str, connections: int, counted: Counted, work: Callable[[], Awaitable[None]]
) -> list[Result]:
    before = counted.figures()
    began, cpu = time.monotonic(), time.process_time()
    await work()
    elapsed, spent = time.monotonic() - began, time.process_time() - cpu
    sent = [now - then for now, then in zip(counted.figures(), before, strict=True)]
    results = [
        Result(f"{what}: time", elapsed, "s"),
        Result(f"{what}: CPU of a connection", spent / connections * 1e6, "µs"),
    ]
    for protocol, commands, blocks in (("SMP", sent[0], sent[1]), ("NTF", sent[2], sent[3])):
        if commands:
            results.append(Result(f"{what}: {protocol} commands", commands, "commands"))
            results.append(Result(f"{what}: {protocol} blocks", blocks, "blocks"))
    return results


async def _registered(agent: Agent) -> None:
    status = await agent.tokens.register(_DEVICE, NotificationMode.INSTANT)
    assert status.state is TokenState.REGISTERED


async def _create(agent: Agent, connections: int) -> None:
    async def some(count: int) -> None:
        for _ in range(count):
            await agent.connections.create(subscribe=False)

    each, more = divmod(connections, AT_ONCE)
    await asyncio.gather(*(some(each + (number < more)) for number in range(AT_ONCE)))


async def _subscribed(agent: Agent, store: AgentSqliteStore, connections: int) -> None:
    """Returns when each has a subscription; asks the store only when the workers rest."""
    while True:
        await agent.supervisor.decided()
        if agent.supervisor.resting:
            rows = await store.subscriptions()
            if len(rows) == connections and all(row.subscription_id for row in rows):
                return
        await asyncio.sleep(0.02)


# Waking


async def wake(rounds: int, repeats: int) -> list[Result]:
    """Opening a push, without fetching; next to its cryptography alone.

    Agent and store are two threads that hand over to each other: that costs more CPU when the system puts them on
    two cores, as it likes, so both cases are measured.
    """
    bare = min(_seconds_of_cryptography(repeats) for _ in range(rounds))
    results = [Result(f"a push with {ENTRIES} entries, its cryptography alone: CPU", bare * 1e6, "µs")]
    for where, cores in (("", contextlib.nullcontext()), (", on one core", _one_core())):
        with cores, tempfile.TemporaryDirectory() as name:
            async with opened_agent_store(Path(name) / "agent.db") as store, Agent(store) as agent:
                payload = await _notified(store)
                spent = min([await _seconds_per_wake(agent, payload, repeats) for _ in range(rounds)])
        what = f"a wake by a push with {ENTRIES} entries{where}: CPU"
        results.append(Result(what, spent * 1e6, "µs", spent / bare))
    return results


@contextlib.contextmanager
def _one_core() -> Iterator[None]:
    """For this thread and those that it starts; without effect where the system cannot do it."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


async def _notified(store: AgentSqliteStore) -> bytes:
    """A push about as many connections as it can name, which the store has."""
    router = RouterLocation(("smp.example.com",), "5223", bytes(32))
    secret = os.urandom(32)
    await store.save_token(
        AgentToken(
            _DEVICE,
            RouterLocation(("ntf.example.com",), "", bytes(32)),
            os.urandom(32),
            os.urandom(32),
            TokenStatus(TokenState.ACTIVE),
            CheckDue(),
            NotificationMode.INSTANT,
            os.urandom(24),
            secret,
        )
    )
    items = []
    for number in range(ENTRIES):
        notifier = QueueNotifier(os.urandom(24), os.urandom(32), os.urandom(32))
        ids, keys = (os.urandom(24), os.urandom(24)), (os.urandom(32), os.urandom(32), os.urandom(32))
        queue = ReceiveQueue(
            str(number), 1, router, ids[0], keys[0], keys[1], ids[1], keys[2], notifier=notifier
        )
        await store.add_connection(AgentConnection(str(number)), queue, None)
        nonce = os.urandom(24)
        meta = NotificationMeta(os.urandom(24), 1_700_000_000)
        sealed = seal_meta(box_key(notifier.secret), nonce, meta)
        items.append(
            PushedNotification(NotifierQueue(router, notifier.notifier_id), 1_700_000_000, nonce, sealed)
        )
    return push_json(seal_notifications(box_key(secret), os.urandom(24), items))


async def _seconds_per_wake(agent: Agent, payload: bytes, repeats: int) -> float:
    """CPU of the process: the store has a thread of its own."""
    began = time.process_time()
    for _ in range(repeats):
        woken = await agent.wake(payload)
    spent = time.process_time() - began
    assert isinstance(woken, Woken)
    assert len(woken.to_fetch) == ENTRIES
    return spent / repeats


def _seconds_of_cryptography(repeats: int) -> float:
    """One key and one box of the push, and one of each for every entry."""
    secret, nonce = os.urandom(32), os.urandom(24)
    key = hsalsa20(secret, bytes(16))
    push = sodium.crypto_secretbox_easy(bytes(_PUSH_BOX_BYTES), nonce, key)
    meta = sodium.crypto_secretbox_easy(bytes(_META_BOX_BYTES), nonce, key)
    began = time.process_time()
    for _ in range(repeats):
        sodium.crypto_secretbox_open_easy(push, nonce, hsalsa20(secret, bytes(16)))
        for _ in range(ENTRIES):
            sodium.crypto_secretbox_open_easy(meta, nonce, hsalsa20(secret, bytes(16)))
    return (time.process_time() - began) / repeats


async def measure(*, quick: bool) -> list[Result]:
    results = await wake(*((2, 50) if quick else (5, 1000)))
    return results + await set_up(300 if quick else 10_000)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.agent", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    options = parser.parse_args()
    show("The agent: CPU of its process", asyncio.run(measure(quick=options.quick)))


if __name__ == "__main__":
    main()
