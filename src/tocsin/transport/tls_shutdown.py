"""The end of a TLS connection, on a non-blocking socket.

After close_notify the socket stays open until the peer has closed its side too, and arriving bytes are thrown
away: closing a socket with unread bytes makes the kernel reset the connection and drop unsent bytes.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import Final

_DISCARD_BYTES: Final = 65_536


def say_goodbye(sock: ssl.SSLSocket) -> None:
    """Send close_notify and FIN. Raises OSError if the connection is already gone."""
    with suppress(
        OSError, ValueError
    ):  # unwrap also asks for the peer's close_notify, which is not there yet
        sock.unwrap()
    sock.shutdown(socket.SHUT_WR)


def discard_arrived(sock: ssl.SSLSocket) -> bool:
    """Throw bytes away undecrypted. Returns False when the peer has closed or is gone."""
    try:
        return socket.socket.recv(sock, _DISCARD_BYTES) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
