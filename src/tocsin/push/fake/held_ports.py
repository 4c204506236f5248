"""A port that nobody listens on, and that nobody else gets."""

from __future__ import annotations

import socket


def hold_port(host: str, port: int) -> socket.socket | None:
    """Bind a port without listening, so that connections to it are refused. Returns None if somebody has it already.

    The system gives a free port to the next client that needs one. A service that listens again could then not have it.
    A listener may take it while it is held, if it sets SO_REUSEADDR.
    """
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, port))
    except OSError:
        held.close()
        return None
    return held
