"""The addresses of one SMP router, and the way to it: by whichever of them answers first.

Theory of operation. An SMP router is its fingerprint, and devices name its hosts. Any device can name any host with the
fingerprint of somebody else's router, or one that the router has left. The fingerprint is verified in every connection,
so a wrong address costs nothing but time. So the router is dialled at all its addresses at the same time, with delays
for each, and the first one that answers serves the session. The others are tried again when that session is over.
Addresses that have answered are dialled whenever it is their time; others need a place (`dial_places`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, NamedTuple

from tocsin.clients import SmpClient
from tocsin.clients.settings import Backoff
from tocsin.errors import HandshakeFault, HandshakeRefused, RemoteProtocolError, TransportError
from tocsin.ntf_router.settings.settings import SubscriberSettings
from tocsin.ntf_router.store.records import USED_ADDRESSES
from tocsin.ntf_router.subscriber.smp_network import SmpRouterInUse
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme, is_onion
from tocsin.transport.client_sessions import ServiceIdentity

MOST_ADDRESSES: Final = USED_ADDRESSES
"""Addresses of one router that are remembered. A new one takes the place of the one that failed most often."""
_SERVICE_FAULTS: Final = frozenset({HandshakeFault.BAD_AUTH, HandshakeFault.BAD_SERVICE})

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class DialledAddress:
    location: RouterLocation
    hosts: tuple[str, ...]
    """The hosts that the settings allow."""
    owner: bytes | None
    """The token that named it, if it never answered."""
    proven: bool
    """The router answered there, or the store says that it did."""
    delays: Iterator[float]
    failures: int = 0
    ready_at: float = 0.0
    """Loop time of the next attempt."""


class ReachedRouter(NamedTuple):
    address: DialledAddress
    client: SmpClient
    connection: AsyncExitStack
    """Closes the connection."""


class RouterAddresses:
    """`reach` is called for one session after the other. `still_wanted` is asked before each further attempt."""

    def __init__(
        self,
        router: SmpRouterInUse,
        still_wanted: Callable[[], Awaitable[bool]],
        after_failure: Callable[[], Awaitable[None]],
    ) -> None:
        self._router = router
        self._network = router.network
        self._still_wanted = still_wanted
        self._after_failure = after_failure
        self._known: dict[RouterLocation, DialledAddress] = {}
        self._attempts: dict[RouterLocation, asyncio.Task[None]] = {}
        self._reached: asyncio.Future[ReachedRouter | None] | None = None
        self._tried = False
        settings = self._network.settings
        self._backoff = Backoff(settings.reconnect_initial, 10.0, settings.reconnect_maximum)
        # A device may name hosts that refuse at once, so these delays grow from the first failure on.
        self._unproven_backoff = Backoff(
            settings.reconnect_initial,
            0.0,
            max(settings.reconnect_maximum, settings.untried_maximum),
            factor=2.0,
        )

    def __contains__(self, location: RouterLocation) -> bool:
        return location in self._known

    def add(self, location: RouterLocation, owner: bytes | None, *, proven: bool) -> None:
        """Try an address from now on. `owner` is the token that names it now."""
        known = self._known.get(location)
        if known is not None:
            if not known.proven and owner is not None and owner != known.owner:
                known.owner = owner
                self._network.dial_places.also_named_by(location, owner)
            return
        hosts = hosts_to_dial(location, self._network.settings)
        if not hosts or not self._make_room():
            return
        delays = (self._backoff if proven else self._unproven_backoff).delays()
        address = DialledAddress(location, hosts, None if proven else owner, proven, delays)
        self._known[location] = address
        if self._reached is not None and not self._reached.done():
            self._start(address, self._reached)

    def _make_room(self) -> bool:
        if len(self._known) < MOST_ADDRESSES:
            return True
        worst = max(self._known.values(), key=lambda each: (not each.proven, each.failures))
        if worst.proven and not worst.failures:
            return False
        del self._known[worst.location]
        if (task := self._attempts.pop(worst.location, None)) is not None:
            task.cancel()
        return True

    async def reach(self) -> ReachedRouter | None:
        """Connect. Returns None if `still_wanted` said no; ask again, because that may have changed since."""
        if not self._known:
            self._router.state.last_error = "none of its hosts is of the kind that host_mode requires"
            logger.warning("%s: %s", self._router.address.name, self._router.state.last_error)
        reached: asyncio.Future[ReachedRouter | None] = asyncio.get_running_loop().create_future()
        self._reached = reached
        for address in self._known.values():
            self._start(address, reached)
        try:
            await asyncio.wait([reached])
            return reached.result()
        except BaseException:
            if reached.done() and reached.exception() is None and (won := reached.result()) is not None:
                await won.connection.aclose()
            raise
        finally:
            self._reached = None
            attempts = list(self._attempts.values())
            self._attempts.clear()
            for task in attempts:
                task.cancel()
            await asyncio.gather(*attempts, return_exceptions=True)

    def session_ended(self, address: DialledAddress, *, steady: bool) -> None:
        """Wait before the next session. After a steady session the delays start from the beginning."""
        if steady:
            address.delays = self._backoff.delays()
        ready_at = self._next_time(self._backoff, address.delays)
        for each in self._known.values():
            each.ready_at = max(each.ready_at, ready_at)

    def _start(self, address: DialledAddress, reached: asyncio.Future[ReachedRouter | None]) -> None:
        task = asyncio.create_task(self._attempt(address, reached))
        self._attempts[address.location] = task
        task.add_done_callback(lambda done: _pass_error(done, reached))

    async def _attempt(self, address: DialledAddress, reached: asyncio.Future[ReachedRouter | None]) -> None:
        """Dial one address again and again, until the router is reached or not wanted."""
        loop = asyncio.get_running_loop()
        while not reached.done():
            await asyncio.sleep(max(0.0, address.ready_at - loop.time()))
            if self._tried and not await self._still_wanted():
                if not reached.done():
                    reached.set_result(None)
                return
            self._tried = True
            certificate: ServiceIdentity | None = None
            try:
                if not self._router.service_refused:
                    certificate = await self._network.certificate_for(self._router)
                async with AsyncExitStack() as connection:
                    client = await self._dial(connection, address, certificate)
                    if certificate is not None and client.session.service is not None:
                        await self._network.certificate_accepted(self._router, certificate)
                    if not reached.done():
                        self._answered(address)
                        reached.set_result(ReachedRouter(address, client, connection.pop_all()))
                    return
            except HandshakeRefused as error:
                # Routers that cannot read our certificate answer BAD_AUTH, those that know it in another role, or
                # cannot store it now, BAD_SERVICE.
                if certificate is not None and error.fault in _SERVICE_FAULTS:
                    logger.warning("%s: %s", _name(address.location), error)
                    self._router.service_refused = True
                    continue  # at once: only the service was refused
                await self._failed(address, error)
            except (TransportError, RemoteProtocolError) as error:
                await self._failed(address, error)

    async def _dial(
        self, connection: AsyncExitStack, address: DialledAddress, certificate: ServiceIdentity | None
    ) -> SmpClient:
        """Connect until `connection` is closed. An address that never answered waits for a place first."""
        dialled = RouterLocation(address.hosts, address.location.port, address.location.key_hash)
        connecting = self._network.connect(RouterAddress(Scheme.SMP, dialled), certificate)
        if address.proven:
            return await connection.enter_async_context(connecting)
        async with self._network.dial_places.place(address.location, address.owner, address.failures):
            return await connection.enter_async_context(connecting)

    def _answered(self, address: DialledAddress) -> None:
        self._router.service_refused = False  # the next session tries again
        address.failures = 0
        if not address.proven:
            address.proven = True
            address.owner = None
            address.delays = self._backoff.delays()
        self._router.known_at(address.location)

    async def _failed(self, address: DialledAddress, error: Exception) -> None:
        level = logging.WARNING if isinstance(error, HandshakeRefused) else logging.INFO
        logger.log(level, "%s: %s", _name(address.location), error)
        if address.proven or not any(each.proven for each in self._known.values()):
            self._router.state.last_error = str(error)
        address.failures += 1
        address.ready_at = self._next_time(
            self._backoff if address.proven else self._unproven_backoff, address.delays
        )
        await self._after_failure()

    @staticmethod
    def _next_time(backoff: Backoff, delays: Iterator[float]) -> float:
        chance = random.random()  # noqa: S311 - so that not all come back at once
        return asyncio.get_running_loop().time() + backoff.spread(next(delays), chance)


def _pass_error(task: asyncio.Task[None], reached: asyncio.Future[ReachedRouter | None]) -> None:
    """Let a bug end the subscriber, which reports it."""
    if not task.cancelled() and (error := task.exception()) is not None and not reached.done():
        reached.set_exception(error)


def _name(location: RouterLocation) -> str:
    return RouterAddress(Scheme.SMP, location).name


def hosts_to_dial(location: RouterLocation, settings: SubscriberSettings) -> tuple[str, ...]:
    """Return the hosts of an address that the settings allow."""
    if not settings.required_host_mode:
        return location.hosts
    return tuple(host for host in location.hosts if is_onion(host) == settings.prefer_onion)
