"""The TLS handshake on a non-blocking socket, and what it reveals about the peer."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
from typing import Any, Final, cast
from weakref import WeakSet

from tocsin.errors import ConnectFailed, TlsUnsupported
from tocsin.transport import libssl

STEPS_PER_ITERATION: Final = 2
"""Steps of handshakes in one iteration of the event loop."""


_asked: Final[WeakSet[ssl.SSLSocket]] = WeakSet()
"""Clients' sockets whose server asked for a certificate."""


class HandshakeSteps:
    """The steps of all handshakes of a listener: only a few in each iteration of the event loop.

    A step may cost half a millisecond of cryptography. Hundreds of clients that connect at the same time would
    otherwise keep established connections waiting for all of them.
    """

    def __init__(self) -> None:
        self._taken = 0

    def take(self) -> bool:
        """Take a step of this iteration. Returns False if no step is left."""
        if self._taken == 0:
            asyncio.get_running_loop().call_soon(self._begin_iteration)
        if self._taken >= STEPS_PER_ITERATION:
            return False
        self._taken += 1
        return True

    def _begin_iteration(self) -> None:
        self._taken = 0


class TlsHandshake:
    """One handshake in progress. It never closes the socket: the caller does."""

    __slots__ = ("_done", "_loop", "_sock", "_steps")

    def __init__(self, sock: ssl.SSLSocket, steps: HandshakeSteps | None = None) -> None:
        """`steps` limits how many handshakes go on at a time."""
        self._sock = sock
        self._steps = steps
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[ConnectFailed | None] = self._loop.create_future()

    async def run(self) -> None:
        """Return when both sides are done. Raises ConnectFailed. There is no time limit here."""
        descriptor = self._sock.fileno()
        self._step()
        try:
            failure = await self._done
        finally:
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)
        if failure is not None:
            raise failure

    def drop(self, reason: str) -> None:
        """Make `run` raise ConnectFailed now."""
        self._finish(ConnectFailed(reason))

    def _step(self) -> None:
        if self._done.done():
            return
        descriptor = self._sock.fileno()
        if self._steps is not None and not self._steps.take():
            self._loop.add_reader(descriptor, self._step)  # which calls again in the next iteration
            return
        requests = libssl.certificate_requests()
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            self._loop.remove_writer(descriptor)
            self._loop.add_reader(descriptor, self._step)
        except ssl.SSLWantWriteError:
            self._loop.remove_reader(descriptor)
            self._loop.add_writer(descriptor, self._step)
        except (OSError, ValueError) as error:  # ValueError: a socket that was closed meanwhile
            self._finish(ConnectFailed(f"TLS handshake failed: {describe_failure(error)}"))
        else:
            self._finish(None)
        if libssl.certificate_requests() != requests:
            _asked.add(self._sock)

    def _finish(self, failure: ConnectFailed | None) -> None:
        if not self._done.done():
            self._done.set_result(failure)


def wrap(
    sock: socket.socket, context: ssl.SSLContext, *, server_side: bool, server_name: str | None = None
) -> ssl.SSLSocket:
    """Return a TLS socket before its handshake, which takes over the descriptor. Raises ConnectFailed."""
    try:
        return context.wrap_socket(
            sock, server_side=server_side, do_handshake_on_connect=False, server_hostname=server_name
        )
    except (OSError, ValueError) as error:  # the peer is gone already, or TLS cannot carry the name
        sock.close()
        raise ConnectFailed(f"TLS cannot start: {describe_failure(error)}") from error


async def start_client_tls(
    sock: socket.socket, context: ssl.SSLContext, *, server_name: str | None = None
) -> ssl.SSLSocket:
    """Take over a connected socket and finish the handshake. Raises ConnectFailed and then closes the socket."""
    tls = wrap(sock, context, server_side=False, server_name=server_name)
    try:
        await TlsHandshake(tls).run()
    except BaseException:
        tls.close()
        raise
    return tls


def describe_failure(error: Exception) -> str:
    """Describe a failure in OpenSSL's or the system's words, without source lines."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or error.strerror or str(error)).replace("_", " ").lower()
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno else str(error)  # asyncio puts addresses in the text
    return str(error)


def session_id(sock: ssl.SSLSocket) -> bytes:
    """Return the client's Finished: 12 bytes in TLS 1.2, a hash in 1.3 (smp.md 2.4). Raises TlsUnsupported."""
    binding = sock.get_channel_binding("tls-unique")
    if binding is None:
        raise TlsUnsupported("OpenSSL gives no tls-unique channel binding for this connection")
    return binding


def asked_for_certificate(sock: ssl.SSLSocket) -> bool:
    """Whether the server asked this client for its certificate, and so got it."""
    return sock in _asked


def peer_chain(sock: ssl.SSLSocket) -> tuple[bytes, ...]:
    """Return the DER certificates that the peer sent, leaf first."""
    if sock.getpeercert(binary_form=True) is None:
        return ()  # asked first: the chain of a client without a certificate has a hole in place of the leaf
    if sys.version_info >= (3, 13):
        return tuple(sock.get_unverified_chain())
    import _ssl

    # Before 3.13 the chain is there, but only behind the private object.
    certificates = cast(Any, sock)._sslobj.get_unverified_chain() or ()
    return tuple(certificate.public_bytes(_ssl.ENCODING_DER) for certificate in certificates)
