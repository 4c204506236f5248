"""Options of TCP sockets (smp.md 2, "TCP keep-alive")."""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
import termios
from contextlib import suppress
from typing import Final

KEEP_ALIVE_IDLE_SECONDS: Final = 30
KEEP_ALIVE_INTERVAL_SECONDS: Final = 15
KEEP_ALIVE_PROBES: Final = 4

_SIOCOUTQ: Final = 0x5411  # linux/sockios.h: bytes in the send queue that the peer has not acknowledged

_TCP_CLOSE: Final = 7  # linux/tcp_states.h: neither end of this connection is open


def send_without_delay(sock: socket.socket) -> None:
    """Switch off Nagle's algorithm: blocks are whole requests and answers, so waiting for more only costs time."""
    with suppress(OSError):  # a lost connection fails soon enough anyway
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def keep_alive(sock: socket.socket) -> None:
    """Make the kernel notice a dead peer of a connection that only waits for notifications."""
    options = {
        # macOS has another name for the idle time.
        "TCP_KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "TCP_KEEPALIVE": KEEP_ALIVE_IDLE_SECONDS,
        "TCP_KEEPINTVL": KEEP_ALIVE_INTERVAL_SECONDS,
        "TCP_KEEPCNT": KEEP_ALIVE_PROBES,
    }
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in options.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def reset_when_closed(sock: socket.socket) -> None:
    """Make the kernel break the connection when the socket is closed, instead of closing it in order."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def has_arrived(sock: socket.socket, size: int) -> bool:
    """Return whether the kernel has this many bytes to read; False if the system does not report it."""
    try:
        answer = fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(4))
    except (OSError, ValueError):
        return False
    return int.from_bytes(answer, sys.byteorder) >= size


def was_reset(sock: socket.socket) -> bool:
    """Return whether the connection broke instead of being closed; False if the system does not report it."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE
    except OSError:
        return False


def unacknowledged_bytes(sock: socket.socket) -> int | None:
    """Return how many sent bytes the peer's system has not acknowledged; None if the system does not report it."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        answer = fcntl.ioctl(sock.fileno(), _SIOCOUTQ, bytes(4))
    except (OSError, ValueError):
        return None
    count: int = struct.unpack("i", answer)[0]
    return count
