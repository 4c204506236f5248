"""A TLS connection as a stream of bytes on a non-blocking socket, for push providers.

It connects sockets and starts TLS in the same way as `BlockConnection`. It closes at once, without
close_notify, because the protocols on it mark the end of their messages.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias

from tocsin.errors import ConnectFailed
from tocsin.transport.dialer import connect_tcp, resolve
from tocsin.transport.resolver import Address
from tocsin.transport.tls_handshake import describe_failure, start_client_tls

RECORD_BYTES: Final = 16_384
MAX_UNSENT_BYTES: Final = 16_777_216
"""More than all streams of a connection can hold: a peer that lets this much pile up does not read."""
PART_BYTES: Final = 4 * RECORD_BYTES
_READS_PER_WAKE_UP: Final = 16

FindAddresses: TypeAlias = Callable[[str, int], Awaitable[Sequence[Address]]]
"""Maps a host and a port to the addresses that may be connected to. Raises ConnectFailed."""


class TlsStream:
    """A connection after its handshake. `on_data` gets what arrives; `on_lost` gets the reason for the end, once."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._written: list[bytes] = []
        self._written_bytes = 0
        self._parts: deque[memoryview] = deque()
        """Bytes that wait for the kernel, in parts of some full records. It gets one part at a time."""
        self._scheduled = False
        self._waits_for_room = False
        self._closed = False
        self._on_data: Callable[[bytes], bool | None] | None = None
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
        """Connect within `limit` seconds. `find` chooses among the host's addresses. Raises ConnectFailed."""
        try:
            async with asyncio.timeout(limit):
                return cls(await _connect(host, port, context, limit, find or resolve))
        except TimeoutError:
            raise ConnectFailed(f"no connection to {host} port {port} within {limit:g} s") from None
        except (OSError, ConnectFailed) as error:
            raise ConnectFailed(f"no connection to {host} port {port}: {describe_failure(error)}") from error

    def start(self, on_data: Callable[[bytes], bool | None], on_lost: Callable[[str], None]) -> None:
        """`on_data` may return True: more has perhaps come already, and is read without a turn of the event loop."""
        self._on_data, self._on_lost = on_data, on_lost
        self._loop.add_reader(self._sock.fileno(), self._readable)
        if self._sock.pending():
            self._loop.call_soon(self._readable)

    def write(self, data: bytes) -> None:
        """Queue data, which leaves at the end of this loop iteration with everything else written in it.

        Closes the connection if the peer leaves too much unread.
        """
        self.write_pieces((data,), len(data))

    def write_pieces(self, pieces: Iterable[bytes], size: int) -> None:
        """Queue pieces of so many bytes in all, as `write` does, without joining them first."""
        if self._closed:
            return
        self._written += pieces
        self._written_bytes += size
        if self._written_bytes >= PART_BYTES:
            self._fill_parts()
        if not self._scheduled and not self._waits_for_room and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def close(self, reason: str) -> None:
        """Close the socket now and call `on_lost`."""
        if self._closed:
            return
        self._closed = True
        descriptor = self._sock.fileno()
        self._loop.remove_reader(descriptor)
        self._loop.remove_writer(descriptor)
        self._sock.close()
        self._written.clear()
        self._parts.clear()
        if self._on_lost is not None:
            self._on_lost(reason)

    def flush(self) -> None:
        """Pass written bytes to the kernel now, as many as it takes."""
        self._scheduled = False
        parts = self._parts
        while not self._closed:
            if not parts:
                if not self._written_bytes:
                    return
                parts.append(memoryview(b"".join(self._written)))
                self._written, self._written_bytes = [], 0
            try:
                sent = self._sock.send(parts[0])
            except ssl.SSLWantWriteError:
                # OpenSSL wants the same bytes again; it never wants to read here, since nothing is renegotiated.
                self._waits_for_room = True
                self._loop.add_writer(self._sock.fileno(), self._writable)
                return
            except OSError as error:
                self.close(describe_failure(error))
                return
            if sent == len(parts[0]):
                parts.popleft()
            else:
                parts[0] = parts[0][sent:]

    def _fill_parts(self) -> None:
        """Join what was written to parts, and keep what fills no part.

        Parts stay small, because the memory of large ones goes back to the system each time. They are made as soon
        as they are full, while their bytes are in the processor's cache.
        """
        joined = b"".join(self._written)
        whole = len(joined) - len(joined) % PART_BYTES
        view = memoryview(joined)
        self._parts.extend(view[at : at + PART_BYTES] for at in range(0, whole, PART_BYTES))
        self._written, self._written_bytes = [joined[whole:]], len(joined) - whole
        if len(self._parts) * PART_BYTES > MAX_UNSENT_BYTES:
            self.close("the peer does not read")

    def _writable(self) -> None:
        self._loop.remove_writer(self._sock.fileno())
        self._waits_for_room = False
        self.flush()

    def _readable(self) -> None:
        for _ in range(_READS_PER_WAKE_UP):
            if self._closed:
                return
            try:
                data = self._sock.recv(RECORD_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError as error:
                self.close(describe_failure(error))
                return
            if not data:
                self.close("closed by the peer")
                return
            expects_more = self._on_data is not None and self._on_data(data)
            if not expects_more and not self._sock.pending():
                return
        self._loop.call_soon(self._readable)


async def _connect(
    host: str, port: int, context: ssl.SSLContext, limit: float, find: FindAddresses
) -> ssl.SSLSocket:
    """Try each address in turn, for an equal share of the time, so that a silent one leaves time for the next."""
    failure: Exception = ConnectFailed("the name has no address")
    addresses = await find(host, port)
    for address in addresses:
        try:
            async with asyncio.timeout(limit / len(addresses)):
                return await start_client_tls(await connect_tcp(address), context, server_name=host)
        except (OSError, ConnectFailed) as error:
            failure = error
    raise failure
