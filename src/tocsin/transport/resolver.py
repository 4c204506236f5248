"""Addresses of host names: many lookups at a time, of which slow names take only their share.

Theory of operation. The system's lookup (`getaddrinfo`) blocks a thread, cannot be cancelled, and takes as long as the
domain's name servers make it take: 10 seconds and more if their owner wants it. Strangers name hosts, so slow names
must not keep others waiting:

* A lookup runs in a thread of its own, which nobody waits for when the program ends. At most `MAX_LOOKUPS` run at a
  time, of these at most `MAX_LOOKUPS_OF_DOMAIN` for names of one domain, and `RESERVED_LOOKUPS` only for names that
  were found before. Requests for the same name share a lookup. Others wait in line, at most `MAX_WAITING`; beyond that
  they fail at once.
* An answer is used for `FRESH_SECONDS`. After that the name is looked up again, but if that takes longer than
  `PATIENCE_SECONDS`, or fails, the old answer is used, for up to `STALE_SECONDS`. At most `MAX_ANSWERS` are kept; the
  one that was unused for longest goes first.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from tocsin.errors import ConnectFailed

MAX_LOOKUPS: Final = 320
MAX_LOOKUPS_OF_DOMAIN: Final = 16
RESERVED_LOOKUPS: Final = 64
MAX_WAITING: Final = 4096
FRESH_SECONDS: Final = 60.0
STALE_SECONDS: Final = 86_400.0
PATIENCE_SECONDS: Final = 2.0
MAX_ANSWERS: Final = 4096
SHORT_LABEL: Final = 3
"""A second label as short as this, as in example.co.uk, belongs to the suffix under which domains are registered."""

Address: TypeAlias = tuple[socket.AddressFamily, tuple[str, int]]
HostAddresses: TypeAlias = tuple[tuple[socket.AddressFamily, str], ...]
Lookup: TypeAlias = Callable[[str], HostAddresses]


def look_up(host: str) -> HostAddresses:
    """Ask the system, in the calling thread. Raises OSError or UnicodeError (a label that IDNA cannot encode)."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys((family, str(where[0])) for family, _, _, _, where in found))


@dataclass(slots=True)
class _Answer:
    addresses: HostAddresses
    at: float


class Resolver:
    """Finds addresses for the tasks of one event loop. The module's docstring names the limits."""

    def __init__(self, lookup: Lookup | None = None) -> None:
        """`lookup` replaces the system's lookup in tests."""
        self._lookup = lookup
        self._answers: dict[str, _Answer] = {}
        self._under_way: dict[str, asyncio.Future[HostAddresses]] = {}
        """Lookups that run or wait in line, by name."""
        self._running: Counter[str] = Counter()
        """Running lookups by domain."""
        self._line: dict[str, None] = {}
        """Names in line, oldest first."""

    @property
    def running(self) -> int:
        return self._running.total()

    @property
    def waiting(self) -> int:
        return len(self._line)

    async def resolve(self, host: str, port: int) -> list[Address]:
        """Return the TCP addresses of a host, without a lookup if it is an IP address. Raises ConnectFailed."""
        try:
            address = ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            found = await self._find(host)
        else:
            found = ((socket.AF_INET if address.version == 4 else socket.AF_INET6, str(address)),)
        return [(family, (where, port)) for family, where in found]

    async def _find(self, host: str) -> HostAddresses:
        known = self._answers.pop(host, None)
        if known is not None:
            self._answers[host] = known  # the newest in use
            if _now() - known.at < FRESH_SECONDS:
                return known.addresses
        lookup = asyncio.shield(self._start(host))
        if known is None or _now() - known.at > STALE_SECONDS:
            return await lookup
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await lookup
        except (TimeoutError, ConnectFailed):
            return known.addresses

    def _start(self, host: str) -> asyncio.Future[HostAddresses]:
        """Return the lookup of the name, which goes on even if nobody waits for it."""
        under_way = self._under_way.get(host)
        if under_way is not None:
            return under_way
        if len(self._line) >= MAX_WAITING:
            raise ConnectFailed(
                f"the name {host} cannot be resolved: too many other names are being resolved"
            )
        future: asyncio.Future[HostAddresses] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_look_at_failure)
        self._under_way[host] = future
        self._line[host] = None
        self._run_next()
        return future

    def _run_next(self) -> None:
        """Start the lookups in line that may run now, oldest first."""
        for host in list(self._line) if self.running < MAX_LOOKUPS else ():
            domain = domain_of(host)
            limit = MAX_LOOKUPS if host in self._answers else MAX_LOOKUPS - RESERVED_LOOKUPS
            if self.running >= limit or self._running[domain] >= MAX_LOOKUPS_OF_DOMAIN:
                continue
            del self._line[host]
            self._running[domain] += 1
            run = partial(self._look_up, host, asyncio.get_running_loop())
            threading.Thread(target=run, name="resolver", daemon=True).start()

    def _look_up(self, host: str, loop: asyncio.AbstractEventLoop) -> None:
        """Run in a thread of its own."""
        result: HostAddresses | Exception
        try:
            result = (self._lookup or look_up)(host)
        except (OSError, UnicodeError) as error:
            result = error
        with suppress(RuntimeError):  # the loop is closed: the program ends
            loop.call_soon_threadsafe(self._finish, host, result)

    def _finish(self, host: str, result: HostAddresses | Exception) -> None:
        domain = domain_of(host)
        self._running[domain] -= 1
        if not self._running[domain]:
            del self._running[domain]
        future = self._under_way.pop(host)
        if isinstance(result, Exception):
            failure = ConnectFailed(f"the name {host} cannot be resolved: {result}")
            failure.__cause__ = result
            future.set_exception(failure)
        else:
            self._remember(host, result)
            future.set_result(result)
        self._run_next()

    def _remember(self, host: str, addresses: HostAddresses) -> None:
        self._answers.pop(host, None)
        while len(self._answers) >= MAX_ANSWERS:
            del self._answers[next(iter(self._answers))]
        self._answers[host] = _Answer(addresses, _now())


def domain_of(host: str) -> str:
    """Return the part of a name that one owner has registered, as well as its labels show."""
    labels = host.lower().rstrip(".").split(".")
    count = 3 if len(labels) > 2 and len(labels[-2]) <= SHORT_LABEL else 2
    return ".".join(labels[-count:])


def _now() -> float:
    return asyncio.get_running_loop().time()


def _look_at_failure(future: asyncio.Future[HostAddresses]) -> None:
    """Keep asyncio from reporting a failure that nobody waits for."""
    if not future.cancelled():
        future.exception()


_resolvers: WeakKeyDictionary[asyncio.AbstractEventLoop, Resolver] = WeakKeyDictionary()


def shared_resolver() -> Resolver:
    """Return the resolver of the running event loop: all connections of a program share its limits."""
    loop = asyncio.get_running_loop()
    resolver = _resolvers.get(loop)
    if resolver is None:
        resolver = _resolvers[loop] = Resolver()
    return resolver
