"""Options of TCP sockets (smp.md 2, "TCP keep-alive")."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

KEEP_ALIVE_IDLE_SECONDS: Final = 30
KEEP_ALIVE_INTERVAL_SECONDS: Final = 15
KEEP_ALIVE_PROBES: Final = 4


def send_without_delay(sock: socket.socket) -> None:
    """Blocks are whole requests and answers: waiting to join them with later ones only costs time."""
    with suppress(OSError):  # a connection that is gone already fails soon enough
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def keep_alive(sock: socket.socket) -> None:
    """Makes the kernel notice a dead peer of a connection that only waits for notifications."""
    options = {
        # macOS has the idle time under another name.
        "TCP_KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "TCP_KEEPALIVE": KEEP_ALIVE_IDLE_SECONDS,
        "TCP_KEEPINTVL": KEEP_ALIVE_INTERVAL_SECONDS,
        "TCP_KEEPCNT": KEEP_ALIVE_PROBES,
    }
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in options.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
