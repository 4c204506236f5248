"""The settings that every router has: connections, control port, metrics, statistics, event log. Times are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class OperationSettings:
    """The base of the settings of both routers."""

    hosts: tuple[str, ...] = ("0.0.0.0", "::")  # noqa: S104 - a public server
    ports: tuple[int, ...] = ()
    credentials: Path = Path()
    """Folder of ca.crt, server.crt, server.key."""
    store: Path | None = None
    """Folder of the store's files; None keeps everything in memory only."""
    public_hosts: tuple[str, ...] = ()
    """Host names in the router's address, best first. The router does not listen on them."""
    database_url: str | None = field(default=None, repr=False)
    """URL of the operator's PostgreSQL, which then holds the store."""
    accept_without_alpn: bool = True

    # Connections
    tls_handshake_seconds: float = 60.0
    inactive_check_interval: float = 3600.0
    write_queue_blocks: int = 128
    write_stall_seconds: float = 60.0
    """A connection with blocks to send whose peer reads nothing for this long is closed."""
    max_waiting_bytes: int = 256 * 1024**2
    """Bytes that may wait for peers which do not read, for each port; beyond it the slowest are closed."""
    max_connections: int = 15_000
    drain_seconds: float = 5.0

    # Operation
    control_port: int | None = None
    control_port_admin_password: str | None = field(default=None, repr=False)
    control_port_user_password: str | None = field(default=None, repr=False)
    prometheus_port: int | None = None
    prometheus_host: str = "127.0.0.1"
    prometheus_interval: float | None = None
    """Seconds between updates of the metrics file in the store's folder; None writes no file."""
    log_stats: bool = False
    """Write a line of statistics per day to a file in the store's folder."""
    log_tls_errors: bool = False
    event_log: Path | None = None
    """Folder of the delivery event log; without one no events are written."""
    event_log_keys: Path | None = None
    """Folder of the pseudonym keys. Default: the event log's folder with `-keys` appended to its name."""
    event_log_retention_days: int = 30
    """Days after which events and their pseudonym keys are erased."""
    event_log_bytes: int = 10 * 1024**3
    """Beyond this size the oldest events are erased."""
    event_log_segment_seconds: float = 5.0
    """Readers see an event at most this late."""

    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Where each key was set, by the name of its environment variable, for people."""
