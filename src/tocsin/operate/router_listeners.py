"""The listeners of a router, one for each port, and their metrics: connections that came or were ended, and turns."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from tocsin.operate.metrics import Metric, counter, gauge
from tocsin.operate.settings.operation_settings import OperationSettings
from tocsin.transport.listener import Handler, Listener, ListenerCounts, ListenerLimits, SocketsByPort
from tocsin.transport.turns import Turns

_ABOUT: Final = {
    "accepted": "Connections that the system accepted.",
    "handshake_failed": "Connections whose TLS handshake failed.",
    "handshake_timed_out": "Connections whose TLS handshake took too long.",
    "handshakes_dropped": "TLS handshakes that were dropped for newer ones because too many were in progress.",
    "refused": "Connections closed at once because of max_connections.",
    "accept_pauses": "Times that accepting paused because no file descriptors were left.",
    "stalled": "Connections closed because the peer read nothing for write_stall_seconds.",
    "over_budget": "Connections closed because max_waiting_bytes waited for peers that did not read.",
    "handler_failed": "Connections that ended because of a defect in the router.",
}


class ServedPort(Protocol):
    """A port of a router, which a `Listener` serves, or worker processes."""

    @property
    def port(self) -> int: ...
    @property
    def counts(self) -> ListenerCounts: ...


def listener_limits(settings: OperationSettings) -> ListenerLimits:
    """Return the limits of each port."""
    return ListenerLimits(
        handshake_seconds=settings.tls_handshake_seconds,
        max_connections=settings.max_connections,
        write_limit=settings.write_queue_blocks,
        stall_seconds=settings.write_stall_seconds,
        max_waiting_bytes=settings.max_waiting_bytes,
        drain_seconds=settings.drain_seconds,
    )


def router_listeners(
    settings: OperationSettings,
    handler: Handler,
    context: ssl.SSLContext,
    block_size: int,
    inherited: SocketsByPort | None = None,
) -> list[Listener]:
    """Return the listeners, which are not open yet. Sockets by port that another process opened are `inherited`."""
    limits = listener_limits(settings)
    return [
        Listener(
            handler,
            context=context,
            block_size=block_size,
            hosts=settings.hosts,
            port=port,
            limits=limits,
            inherited=(inherited or {}).get(port, ()),
        )
        for port in settings.ports
    ]


def listener_metrics(prefix: str, listeners: Iterable[ServedPort], turns: Turns) -> Iterator[Metric]:
    """Yield the sums over all ports."""
    counts = [listener.counts for listener in listeners]
    for name, about in _ABOUT.items():
        yield counter(f"{prefix}_listener_{name}", about, sum(getattr(each, name) for each in counts))
    handshakes = sum(each.pending_handshakes for each in counts)
    yield gauge(f"{prefix}_listener_handshakes", "TLS handshakes in progress.", handshakes)
    waiting = sum(each.waiting_bytes for each in counts)
    yield gauge(f"{prefix}_listener_waiting_bytes", "Bytes that wait for peers which do not read.", waiting)
    about = "Times that a connection had used its slice of CPU time and waited for the others."
    yield counter(f"{prefix}_turns_waited", about, turns.waited)
    yield gauge(f"{prefix}_turns_waiting", "Connections that wait for their turn now.", len(turns))
