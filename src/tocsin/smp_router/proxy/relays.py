"""Connections to other routers, for the proxy: one for each relay, shared by all clients, and not too many.

Connecting is slow and may fail, so concurrent requests share one attempt, and a failure is remembered for a while.
Clients name relays freely. At the limit of connections, the one that was unused for longest makes room; while all are
in use, the relay cannot be reached. Unused ones are closed after a while. Clients then learn that the session is gone
and ask for another, as they do when a relay restarts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tocsin.clients import ClientSettings, SmpClient
from tocsin.errors import HandshakeFault, HandshakeRefused, TocsinError
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.error_codes import AnyBrokerFault, BrokerFault, NetworkFault, TransportFault
from tocsin.protocol.sessions import RelayProof
from tocsin.smp_router.settings.settings import SmpProxySettings
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.transport.client_sessions import DialSettings
from tocsin.transport.dialer import is_onion
from tocsin.transport.socks5 import SocksProxy

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Relay:
    """A connection to one relay."""

    location: RouterLocation
    client: SmpClient
    proof: RelayProof
    context: AbstractAsyncContextManager[SmpClient] = field(repr=False)
    own: bool
    """Whether the operator counts it as one of their own."""
    used_at: float
    """Loop time."""
    in_flight: int = 0
    """Commands that wait for its answer."""

    @contextmanager
    def in_use(self) -> Iterator[SmpClient]:
        """Keep the connection from being closed as unused."""
        self.in_flight += 1
        try:
            yield self.client
        finally:
            self.in_flight -= 1
            self.used_at = asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True)
class RelayFailure:
    """The reason for a missing connection."""

    fault: AnyBrokerFault


class Relays:
    def __init__(self, settings: SmpProxySettings, counters: SmpCounters) -> None:
        self._settings = settings
        self._counters = counters
        self._relays: dict[RouterLocation, asyncio.Future[Relay | RelayFailure]] = {}
        """Connected relays and attempts, at most `max_relays`."""
        self._failures: dict[RouterLocation, RelayFailure] = {}
        """Remembered failures, at most `max_relays`, oldest first."""
        self._by_session: dict[bytes, Relay] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """The number of connections and attempts."""
        return len(self._relays)

    @property
    def open(self) -> int:
        """Connections that can be used now."""
        return len(self._by_session)

    @property
    def remembered_failures(self) -> int:
        return len(self._failures)

    def with_session(self, session_id: bytes) -> Relay | None:
        return self._by_session.get(session_id)

    def is_known(self, location: RouterLocation) -> bool:
        """Whether `find` answers without a new connection."""
        known = self._relays.get(location)
        return location in self._failures or (known is not None and known.done())

    async def find(self, location: RouterLocation) -> Relay | RelayFailure:
        """Return the connection to this relay; connect if there is none."""
        failure = self._failures.get(location)
        if failure is not None:
            return failure
        known = self._relays.get(location)
        if known is None:
            if len(self._relays) >= self._settings.max_relays and not self._make_room():
                self._counters.proxy_relays_refused += 1
                return RelayFailure(NetworkFault())
            known = self._relays[location] = asyncio.ensure_future(self._establish(location))
        found = await asyncio.shield(known)
        if isinstance(found, Relay):
            found.used_at = asyncio.get_running_loop().time()
        return found

    def close_idle(self) -> None:
        """Close connections that were unused for `relay_idle` seconds."""
        before = asyncio.get_running_loop().time() - self._settings.relay_idle
        for relay in [each for each in self._by_session.values() if not each.in_flight]:
            if relay.used_at < before:
                self._close(relay)
                self._counters.proxy_relays_closed_idle += 1

    async def close(self) -> None:
        for waiting in list(self._relays.values()):
            waiting.cancel()
        for relay in list(self._by_session.values()):
            self._close(relay)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _make_room(self) -> bool:
        """Close the connection that was unused for longest. Returns False if all are in use."""
        unused = [each for each in self._by_session.values() if not each.in_flight]
        if not unused:
            return False
        self._close(min(unused, key=lambda relay: relay.used_at))
        self._counters.proxy_relays_evicted += 1
        return True

    async def _establish(self, location: RouterLocation) -> Relay | RelayFailure:
        try:
            relay = await self._connect(location)
        except TocsinError as error:
            del self._relays[location]
            return self._remember(location, RelayFailure(_fault(error)))
        except Exception as error:
            # Every request gets an answer, whatever a hostile relay has provoked (v7.md 4).
            logger.warning("connecting to a relay failed: %s", type(error).__name__, exc_info=True)
            del self._relays[location]
            return self._remember(location, RelayFailure(NetworkFault()))
        except BaseException:
            del self._relays[location]
            raise
        if isinstance(relay, RelayFailure):
            del self._relays[location]
            return self._remember(location, relay)
        self._counters.proxy_relays_connected += 1
        self._by_session[relay.client.session.session_id] = relay
        self._run(self._watch(relay))
        return relay

    def _remember(self, location: RouterLocation, failure: RelayFailure) -> RelayFailure:
        """Remember a failure for a while. There are at most as many as relays; the oldest is forgotten first."""
        if self._settings.remember_failure > 0:
            while len(self._failures) >= self._settings.max_relays:
                del self._failures[next(iter(self._failures))]
            self._failures[location] = failure
            loop = asyncio.get_running_loop()
            loop.call_later(self._settings.remember_failure, self._forget, location, failure)
        return failure

    def _forget(self, location: RouterLocation, failure: RelayFailure) -> None:
        if self._failures.get(location) is failure:
            del self._failures[location]

    async def _connect(self, location: RouterLocation) -> Relay | RelayFailure:
        settings = self._settings
        hosts = usable_hosts(settings, location.hosts)
        if not hosts:
            return RelayFailure(BrokerFault.HOST)
        dial = DialSettings(
            connect_timeout=settings.connect_timeout,
            proxy=True,
            socks=socks_proxy(settings),
            onion_first=settings.prefer_onion,
            public_only=settings.public_relays_only,
        )
        address = RouterAddress(Scheme.SMP, RouterLocation(hosts, location.port, location.key_hash))
        context = SmpClient.connect(address, ClientSettings(dial=dial))
        client = await context.__aenter__()
        proof = client.session.relay
        if proof is None:
            await context.__aexit__(None, None, None)
            return RelayFailure(TransportFault.VERSION)
        now = asyncio.get_running_loop().time()
        return Relay(location, client, proof, context, self.is_own(location), now)

    def is_own(self, location: RouterLocation) -> bool:
        """Whether the operator counts it as one of their own."""
        domains = self._settings.own_server_domains
        return any(
            host == domain or host.endswith("." + domain.removeprefix("."))
            for host in location.hosts
            for domain in domains
        )

    async def _watch(self, relay: Relay) -> None:
        """Forget the session when the relay's connection is lost."""
        with suppress(TocsinError):
            async for _event in relay.client.events():
                pass
        self._close(relay)

    def _close(self, relay: Relay) -> None:
        """Close the connection and free its place."""
        if self._by_session.pop(relay.client.session.session_id, None) is not None:
            del self._relays[relay.location]
            self._run(_leave(relay))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _leave(relay: Relay) -> None:
    with suppress(TocsinError):
        await relay.context.__aexit__(None, None, None)


def usable_hosts(settings: SmpProxySettings, hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the hosts that may be tried."""
    if not settings.required_host_mode:
        return hosts
    return tuple(host for host in hosts if is_onion(host) == settings.prefer_onion)


def socks_proxy(settings: SmpProxySettings) -> SocksProxy | None:
    if settings.socks_proxy is None:
        return None
    host, _, port = settings.socks_proxy.rpartition(":")
    return SocksProxy(host, int(port), onion_only=settings.socks_onion_only)


def _fault(error: TocsinError) -> AnyBrokerFault:
    """Return the error for an unreachable relay. A wrong identity looks like no answer."""
    if isinstance(error, HandshakeRefused) and error.fault is HandshakeFault.VERSION:
        return TransportFault.VERSION
    return NetworkFault()
