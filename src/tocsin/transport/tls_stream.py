"""A TLS connection as a stream of bytes on a non-blocking socket: the loop calls, nothing is copied twice."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from tocsin.errors import ConnectFailed

RECORD_BYTES: Final = 16_384
MAX_UNSENT_BYTES: Final = 16_777_216
"""More than all streams of a connection can hold: a peer that lets it come to this does not read."""
_READS_PER_WAKE_UP: Final = 16

Address: TypeAlias = tuple[socket.AddressFamily, tuple[Any, ...]]
FindAddresses: TypeAlias = Callable[[str, int], Awaitable[Sequence[Address]]]
"""From host and port to what may be connected to. Raises ConnectFailed."""


class StreamFailed(OSError):
    """The connection could not be made."""


class TlsStream:
    """After its handshake. `on_data` gets what arrives, `on_lost` the reason of the end, once."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._unsent: bytes | None = None
        self._scheduled = False
        self._waits_for_room = False
        self._closed = False
        self._on_data: Callable[[bytes], None] | None = None
        self._on_lost: Callable[[str], None] | None = None

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        context: ssl.SSLContext,
        limit: float,
        find: FindAddresses | None = None,
    ) -> TlsStream:
        """Raises StreamFailed, saying why, within `limit` seconds. `find` chooses among addresses of the host."""
        try:
            async with asyncio.timeout(limit):
                return cls(await _connected(host, port, context, limit, find or _all_addresses))
        except TimeoutError:
            raise StreamFailed(f"no connection to {host} port {port} within {limit:g} s") from None
        except (OSError, ValueError, UnicodeError, ConnectFailed) as error:
            raise StreamFailed(f"no connection to {host} port {port}: {_reason(error)}") from error

    def start(self, on_data: Callable[[bytes], None], on_lost: Callable[[str], None]) -> None:
        self._on_data, self._on_lost = on_data, on_lost
        self._loop.add_reader(self._sock.fileno(), self._readable)
        if self._sock.pending():
            self._loop.call_soon(self._readable)

    def write(self, data: bytes) -> None:
        """Leaves at the end of this turn of the loop, together with what else is written in it.

        Closes the connection if too much was written that the peer has not taken.
        """
        if self._closed:
            return
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes > MAX_UNSENT_BYTES:
            self.close("the peer does not read")
            return
        if not self._scheduled and not self._waits_for_room:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def close(self, reason: str) -> None:
        """At once; `on_lost` is called."""
        if self._closed:
            return
        self._closed = True
        descriptor = self._sock.fileno()
        self._loop.remove_reader(descriptor)
        self._loop.remove_writer(descriptor)
        self._sock.close()
        self._pending.clear()
        self._unsent = None
        if self._on_lost is not None:
            self._on_lost(reason)

    def flush(self) -> None:
        """Hands what was written to the kernel now, as far as it takes it."""
        self._flush()

    def _flush(self) -> None:
        self._scheduled = False
        while not self._closed:
            if self._unsent is None:
                if not self._pending:
                    return
                self._unsent = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
                self._pending.clear()
                self._pending_bytes = 0
            try:
                sent = self._sock.send(self._unsent)
            except ssl.SSLWantWriteError:
                # OpenSSL wants the same bytes again; it never wants to read here, since nothing is renegotiated.
                self._waits_for_room = True
                self._loop.add_writer(self._sock.fileno(), self._writable)
                return
            except OSError as error:
                self.close(_reason(error))
                return
            self._unsent = None if sent == len(self._unsent) else self._unsent[sent:]

    def _writable(self) -> None:
        self._loop.remove_writer(self._sock.fileno())
        self._waits_for_room = False
        self._flush()

    def _readable(self) -> None:
        for _ in range(_READS_PER_WAKE_UP):
            if self._closed:
                return
            try:
                data = self._sock.recv(RECORD_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError as error:
                self.close(_reason(error))
                return
            if not data:
                self.close("closed by the peer")
                return
            if self._on_data is not None:
                self._on_data(data)
            if not self._sock.pending():
                return
        self._loop.call_soon(self._readable)


async def _all_addresses(host: str, port: int) -> Sequence[Address]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


async def _connected(
    host: str, port: int, context: ssl.SSLContext, limit: float, find: FindAddresses
) -> ssl.SSLSocket:
    """Tries each address in its turn and for its share of the time: one that swallows packets leaves some to others."""
    failure: Exception = OSError("the name has no address")
    addresses = await find(host, port)
    for family, address in addresses:
        try:
            async with asyncio.timeout(limit / len(addresses)):
                return await _connected_to(socket.socket(family, socket.SOCK_STREAM), address, host, context)
        except OSError as error:
            failure = error
    raise failure


async def _connected_to(
    sock: socket.socket, address: tuple[object, ...], host: str, context: ssl.SSLContext
) -> ssl.SSLSocket:
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().sock_connect(sock, address)
        sock = tls = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        await _shake_hands(tls)
    except BaseException:
        sock.close()
        raise
    return tls


async def _shake_hands(sock: ssl.SSLSocket) -> None:
    loop = asyncio.get_running_loop()
    descriptor = sock.fileno()
    while True:
        try:
            sock.do_handshake()
            return
        except ssl.SSLWantReadError:
            add, remove = loop.add_reader, loop.remove_reader
        except ssl.SSLWantWriteError:
            add, remove = loop.add_writer, loop.remove_writer
        ready = loop.create_future()
        add(descriptor, _wake, ready)
        try:
            await ready
        finally:
            remove(descriptor)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return str(getattr(error, "strerror", None) or error)
