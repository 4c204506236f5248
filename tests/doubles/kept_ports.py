"""The port of a router that stops and will start again: nobody else gets it in between."""

from __future__ import annotations

import socket
import weakref

from tocsin.push.fake.held_ports import hold_port


class KeptPort:
    """A port on 127.0.0.1. It is free for others only before its first use, and when this object is gone."""

    def __init__(self) -> None:
        self._held: socket.socket | None = None

    def keep(self, port: int) -> None:
        """Keep the port while nobody listens on it."""
        self.release()
        self._held = hold_port("127.0.0.1", port)
        if self._held is not None:
            weakref.finalize(self, self._held.close)

    def release(self) -> None:
        """Let others have the port. A router that listens needs no keeping."""
        if self._held is not None:
            self._held.close()
            self._held = None
