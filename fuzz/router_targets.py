"""Whole routers through real connections: blocks of commands over TLS, authorized by keys that the router knows.

An input is a list of commands: one byte that chooses the entity, one that chooses the key, a length, and the bytes of
the command. The promise: every command gets one answer, nothing inside the router fails, another client is served, and
what the router has accepted can be read at its next start.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Final, NamedTuple

from fuzz import fixed_parties as fixed
from fuzz.contract import demand, demand_equal
from fuzz.file_targets import demand_ntf_readable, demand_smp_readable
from tocsin.crypto.certificates import issue_leaf, make_authority
from tocsin.crypto.credentials import CertificateAlgorithm, Credentials
from tocsin.crypto.keys import AuthPrivateKey, X25519PrivateKey
from tocsin.errors import ConnectionLost, LocalProtocolError
from tocsin.ntf_router.running_router import RunningNtfRouter, running_ntf_router
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.messages import Command, Response, ServiceSigning
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.responses import TokenRegistered
from tocsin.protocol.ntf.token_commands import RegisterToken
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.smp.queue_modes import NotifierKeys
from tocsin.protocol.smp.recipient_commands import CreateQueue, EnableNotifications
from tocsin.protocol.smp.responses import NotificationsEnabled, QueueCreated
from tocsin.push.provider import NullProvider
from tocsin.push.settings import ApnsEndpoint, ApnsSettings
from tocsin.smp_router.running_router import RunningSmpRouter, running_smp_router
from tocsin.smp_router.settings.settings import SmpProxySettings, SmpSettings
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.transport.client_sessions import ClientConnection, DialSettings, dial_ntf, dial_smp

MOST_COMMANDS: Final = 40
RUNS_PER_ROUTER: Final = 200
"""After so many inputs the router is started again, so that an input depends on few others."""
SECONDS: Final = 20.0
_HOST: Final = "127.0.0.1"


class _Part(NamedTuple):
    entity: int
    key: int
    command: bytes


def parts_of(data: bytes) -> Iterator[_Part]:
    at = 0
    while at + 3 <= len(data):
        size = data[at + 2]
        yield _Part(data[at], data[at + 1], data[at + 3 : at + 3 + size])
        at += 3 + size


def written_part(entity: int, key: int, command: bytes) -> bytes:
    """The input of one command: for seeds."""
    return bytes((entity, key, len(command))) + command if len(command) < 256 else b""


@dataclass(frozen=True, slots=True)
class _Raw:
    """Any bytes in the place of a command."""

    raw: bytes
    service_signing: ClassVar[ServiceSigning] = ServiceSigning.NEVER

    def encode(self, _version: int) -> bytes:
        return self.raw


class _Router:
    """A running router with two clients: one that is fuzzed, and one that must go on."""

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self._runs = 0
        self._address: RouterAddress | None = None
        self._running: RunningSmpRouter | RunningNtfRouter | None = None
        self._store: SmpMemoryStore | NtfMemoryStore = SmpMemoryStore()
        self._fuzzed: ClientConnection | None = None
        self._other: ClientConnection | None = None
        self.entities: list[bytes] = []
        self.keys: list[AuthPrivateKey | None] = []

    def check(self, data: bytes) -> None:
        self._loop.run_until_complete(self._check(data))

    def stop(self) -> None:
        self._loop.run_until_complete(self._stop())

    async def _stop(self) -> None:
        for each in (self._fuzzed, self._other):
            if each is not None:
                each.abort()
        await self._stack.aclose()
        self._stack, self._running = AsyncExitStack(), None

    async def _check(self, data: bytes) -> None:
        if self._running is None or self._runs % RUNS_PER_ROUTER == 0:
            await self._stop()
            await self._start()
        self._runs += 1
        async with asyncio.timeout(SECONDS):
            await self._send(list(parts_of(data))[:MOST_COMMANDS])
            assert self._other is not None
            demand_equal(await self._ask(self._other, Ping(), b"", None), Pong(), "another client is served")
        assert self._running is not None
        failed = sum(each.counts.handler_failed for each in self._running.listeners)
        demand_equal(failed, 0, "nothing fails inside the router")
        if isinstance(self._store, SmpMemoryStore):
            demand_smp_readable(self._store)
        else:
            demand_ntf_readable(self._store)

    async def _start(self) -> None:
        now = datetime.now(UTC)
        authority = make_authority(CertificateAlgorithm.ED25519, now=now, serial=1)
        credentials = issue_leaf(authority, _HOST, CertificateAlgorithm.ED25519, now=now, serial=2)
        self._running = await self._start_router(credentials)
        location = RouterLocation((_HOST,), str(self._running.ports[0]), credentials.fingerprint)
        self._address = RouterAddress(self._scheme, location)
        self._fuzzed, self._other = await self._dial(), await self._dial()
        await self._fill(self._other)

    async def _start_router(self, credentials: Credentials) -> RunningSmpRouter | RunningNtfRouter:
        if self._scheme is Scheme.SMP:
            smp = SmpSettings(hosts=(_HOST,), ports=(0,), store=None, proxy=SmpProxySettings(enabled=False))
            self._store = smp_store = SmpMemoryStore()
            return await self._stack.enter_async_context(running_smp_router(smp, credentials, smp_store))
        endpoints = {
            "apns_test": ApnsEndpoint(_HOST, 1)
        }  # never dialled: the provider below takes every push
        ntf = NtfSettings(hosts=(_HOST,), ports=(0,), apns=ApnsSettings(endpoints=endpoints))
        providers = {PushProvider.APNS_TEST: NullProvider()}
        self._store = ntf_store = NtfMemoryStore()
        return await self._stack.enter_async_context(
            running_ntf_router(ntf, credentials, ntf_store, providers)
        )

    async def _dial(self) -> ClientConnection:
        assert self._address is not None
        dial = dial_smp if self._scheme is Scheme.SMP else dial_ntf
        return await dial(self._address, DialSettings(connect_timeout=SECONDS))

    async def _fill(self, client: ClientConnection) -> None:
        """Entities whose keys the inputs may use."""
        signing, agreeing = fixed.ENTITY_KEY, X25519PrivateKey(os.urandom(32))
        self.entities, self.keys = (
            [b"", b"no such entity of 24 byt"],
            [None, signing, fixed.ENTITY_KEY_448, agreeing],
        )
        if self._scheme is Scheme.NTF:
            for number in range(3):
                token = DeviceToken(PushProvider.APNS_TEST, b"%02x" % number)
                command = RegisterToken(token, signing.public, agreeing.public)
                registered = await self._ask(client, command, b"", signing)
                assert isinstance(registered, TokenRegistered), registered
                self.entities.append(registered.token_id)
            return
        for _ in range(3):
            created = await self._ask(client, CreateQueue(signing.public, agreeing.public), b"", signing)
            assert isinstance(created, QueueCreated)
            keys = NotifierKeys(signing.public, agreeing.public)
            enabled = await self._ask(client, EnableNotifications(keys), created.recipient_id, signing)
            assert isinstance(enabled, NotificationsEnabled)
            self.entities += [created.recipient_id, created.sender_id, enabled.notifier.notifier_id]

    async def _send(self, parts: list[_Part]) -> None:
        """Send all commands in as few blocks as they need, and await an answer to each."""
        if self._fuzzed is None:
            self._fuzzed = await self._dial()
        client, transmissions = self._fuzzed, []
        for number, part in enumerate(parts):
            entity = self.entities[part.entity % len(self.entities)]
            key = self.keys[part.key % len(self.keys)]
            command: Command = _Raw(part.command)  # type: ignore[assignment]
            try:
                transmissions.append(client.session.request(_corr_id(number), entity, command, key))
            except LocalProtocolError:
                continue
        waiting = len(transmissions)
        answered: set[bytes] = set()
        try:
            for batch in client.session.batches(transmissions):
                await client.send(batch)
            while waiting:
                for received in await client.receive():
                    if received.corr_id:
                        demand(received.corr_id not in answered, "a command gets one answer")
                        answered.add(received.corr_id)
                        waiting -= 1
        except ConnectionLost as error:
            self._fuzzed = None
            raise AssertionError("broken promise: a block of commands never ends the connection") from error

    async def _ask(
        self, client: ClientConnection, command: Command, entity: bytes, key: AuthPrivateKey | None
    ) -> Response:
        corr_id = os.urandom(24)
        await client.send([client.session.request(corr_id, entity, command, key)])
        while True:
            for received in await client.receive():
                if received.corr_id == corr_id:
                    assert isinstance(received.response, Response)
                    return received.response


def _corr_id(number: int) -> bytes:
    return number.to_bytes(24, "big")


_ROUTERS: Final[dict[Scheme, _Router]] = {}


def _router(scheme: Scheme) -> _Router:
    if scheme not in _ROUTERS:
        _ROUTERS[scheme] = _Router(scheme)
        atexit.register(_ROUTERS[scheme].stop)
    return _ROUTERS[scheme]


def smp_router(data: bytes) -> None:
    """A running SMP router, over TLS."""
    _router(Scheme.SMP).check(data)


def ntf_router(data: bytes) -> None:
    """A running NTF router, over TLS."""
    _router(Scheme.NTF).check(data)
