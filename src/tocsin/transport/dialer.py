"""Dialing a router: the hosts of its address in turn, TCP or SOCKS5, then TLS.

The peer's identity is not checked here: the caller validates `peer_chain` against the address.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from tocsin.errors import ConnectFailed
from tocsin.transport.block_connection import (
    DEFAULT_READ_LIMIT_BYTES,
    DEFAULT_WRITE_LIMIT,
    BlockConnection,
)
from tocsin.transport.public_hosts import is_public_address, is_public_host
from tocsin.transport.resolver import Address, shared_resolver
from tocsin.transport.socket_options import keep_alive, send_without_delay
from tocsin.transport.socks5 import SocksProxy, connect_through
from tocsin.transport.tls_handshake import describe_failure, start_client_tls

_ONION: str = ".onion"


@dataclass(frozen=True, slots=True)
class Route:
    """A host, and the proxy through which to reach it, if any."""

    host: str
    socks: SocksProxy | None


async def dial(
    hosts: Sequence[str],
    port: int,
    *,
    context: ssl.SSLContext,
    block_size: int,
    connect_timeout: float,
    socks: SocksProxy | None = None,
    onion_first: bool = True,
    public_only: bool = False,
    write_limit: int = DEFAULT_WRITE_LIMIT,
    read_limit_bytes: int = DEFAULT_READ_LIMIT_BYTES,
) -> BlockConnection:
    """Connect to the first host that answers, including TLS, within `connect_timeout` seconds in total.

    Hosts share the time, so a silent host never takes the turn of those after it. Raises ConnectFailed with what
    happened at each host.
    """
    routes, failures = plan_routes(hosts, socks, onion_first=onion_first)
    deadline = asyncio.get_running_loop().time() + connect_timeout
    for index, route in enumerate(routes):
        try:
            share = _share(deadline, len(routes) - index)
            sock = await _reach(route, port, context, share, public_only=public_only)
        except ConnectFailed as failure:
            failures.append(f"{route.host}: {failure}")
            continue
        try:
            return BlockConnection(
                sock,
                block_size=block_size,
                peer_host=route.host,
                write_limit=write_limit,
                read_limit_bytes=read_limit_bytes,
            )
        except BaseException:
            sock.close()
            raise
    raise ConnectFailed(f"no connection to port {port} of {', '.join(hosts)}: {'; '.join(failures)}")


def is_onion(host: str) -> bool:
    return host.endswith(_ONION)


def plan_routes(
    hosts: Sequence[str], socks: SocksProxy | None, *, onion_first: bool = True
) -> tuple[list[Route], list[str]]:
    """Return the routes to try in order, and why the other hosts are left out.

    With a proxy, onion hosts come first unless `onion_first` is off. Without one they are unreachable.
    """
    onion = [host for host in hosts if is_onion(host)]
    clear = [host for host in hosts if not is_onion(host)]
    if socks is None:
        reasons = [f"{host}: an onion host needs a SOCKS proxy, and none is configured" for host in onion]
        return [Route(host, None) for host in clear], reasons
    for_clear = None if socks.onion_only else socks
    onion_routes, clear_routes = (
        [Route(host, socks) for host in onion],
        [Route(host, for_clear) for host in clear],
    )
    return (onion_routes + clear_routes if onion_first else clear_routes + onion_routes), []


async def _reach(
    route: Route, port: int, context: ssl.SSLContext, limit: float, *, public_only: bool
) -> ssl.SSLSocket:
    """Return a socket after its TLS handshake. Raises ConnectFailed, also after `limit` seconds."""
    if public_only and not is_public_host(route.host):
        raise ConnectFailed("not a public host")
    target = (route.socks.host, route.socks.port) if route.socks is not None else (route.host, port)
    deadline = asyncio.get_running_loop().time() + limit
    try:
        async with asyncio.timeout(limit):
            addresses = await find_addresses(*target, public_only=public_only and route.socks is None)
    except TimeoutError:
        raise ConnectFailed(f"the name {target[0]} was not resolved in {limit:.1f} s") from None
    failures = []
    for index, address in enumerate(addresses):
        share = _share(deadline, len(addresses) - index)
        try:
            async with asyncio.timeout(share):
                return await _connect(address, route, port, context)
        except TimeoutError:
            failures.append(f"no answer within {share:.1f} s")
        except ConnectFailed as failure:
            failures.append(str(failure))
        except OSError as error:
            failures.append(describe_failure(error))
    raise ConnectFailed(", ".join(failures))


async def _connect(address: Address, route: Route, port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    sock = await connect_tcp(address)
    if route.socks is not None:
        try:
            await connect_through(sock, route.socks, route.host, port)
        except BaseException:
            sock.close()
            raise
    return await start_client_tls(sock, context)


async def connect_tcp(address: Address) -> socket.socket:
    """Return a connected, non-blocking socket. Raises OSError."""
    family, where = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        send_without_delay(sock)
        keep_alive(sock)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


async def find_addresses(host: str, port: int, *, public_only: bool) -> list[Address]:
    """Resolve a host, perhaps to public addresses only. Raises ConnectFailed if there are none."""
    addresses = await resolve(host, port)
    if public_only:
        addresses = [each for each in addresses if is_public_address(each[1][0])]
        if not addresses:
            raise ConnectFailed("only addresses that are not public")
    return addresses


async def resolve(host: str, port: int) -> list[Address]:
    """Return the TCP addresses of a host, without a lookup if it is an IP address. Raises ConnectFailed."""
    return await shared_resolver().resolve(host, port)


def _share(deadline: float, parts: int) -> float:
    """Return an equal share of the remaining time."""
    return max(0.0, deadline - asyncio.get_running_loop().time()) / parts
