"""All settings of an SMP router (smp.md 9.1, 10.3). Times are seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tocsin.operate.settings.operation_settings import OperationSettings

DAY: Final = 86_400.0
LOWEST_VERSION: Final = 6
HIGHEST_VERSION: Final = 20


@dataclass(frozen=True, slots=True)
class SmpProxySettings:
    """Forwarding senders' commands to other routers."""

    enabled: bool = True
    connect_timeout: float = 15.0
    response_timeout: float = 30.0
    remember_failure: float = 30.0
    """A relay that could not be reached is not tried again for this long."""
    client_concurrency: int = 32
    """Forwarded commands of one client at a time; beyond it the client is not read."""
    client_connects: int = 8
    """Relays that the router connects to for one client at a time; further requests of the client wait."""
    socks_proxy: str | None = None
    """host:port"""
    socks_onion_only: bool = True
    """Other hosts than .onion are reached directly."""
    prefer_onion: bool = False
    """Try the .onion hosts of a relay first."""
    required_host_mode: bool = False
    """Hosts of the other kind are not tried at all."""
    own_server_domains: tuple[str, ...] = ()
    """Relays in these domains are counted separately."""
    public_relays_only: bool = True
    """Relays whose addresses are not public (loopback, private networks) are not tried."""
    max_relays: int = 1000
    """Connections to relays at a time."""
    relay_idle: float = 600.0
    """Close a connection to a relay that was unused for this long."""


@dataclass(frozen=True, slots=True)
class SmpDirectSettings:
    """Direct notifications. NTF routers are reached through the proxy's SOCKS proxy, if there is one."""

    enabled: bool = True
    connect_timeout: float = 15.0
    response_timeout: float = 15.0
    answer_wait: float = 5.0
    """Seconds for which a client waits for its NTF router's answer. Then the packet is pending."""
    retry_initial: float = 5.0
    retry_maximum: float = 3600.0
    keep_packets: float = 7 * DAY
    """Seconds after which a packet that no NTF router accepted is dropped."""
    max_packets: int = 100_000
    """Packets that may wait for all NTF routers together; further ones are refused."""
    max_packets_per_router: int = 10_000
    max_ntf_routers: int = 1000
    """Connections at a time."""
    idle: float = 60.0
    """A connection to an NTF router without packets is closed after this time."""
    public_ntf_routers_only: bool = True
    """NTF routers whose addresses are not public (loopback, private networks) are not tried."""
    ntf_routers: tuple[str, ...] = ()
    """Addresses that clients may name. Empty means any."""


@dataclass(frozen=True, slots=True)
class SmpNameSettings:
    """Names that clients ask to resolve (v7.md 3, 5.4)."""

    enabled: bool = False
    endpoint: str | None = None
    """http or https; a name is asked for at `endpoint/resolve/name`."""
    auth: str | None = field(default=None, repr=False)
    """`bearer token` or `basic user:password`"""
    timeout: float = 3.0
    max_response_bytes: int = 16_000
    concurrency: int = 1000
    """Names of one connection that are resolved at the same time; beyond it the connection is not read."""


@dataclass(frozen=True, slots=True)
class SmpSettings(OperationSettings):
    """The behaviour of an SMP router. The defaults are those of the reference's executable."""

    # Where
    ports: tuple[int, ...] = (5223,)
    credentials: Path = Path("/etc/opt/simplex")
    """Folder of ca.crt, server.crt, server.key."""
    store: Path | None = Path("/var/opt/simplex")
    """Folder of the logs; None keeps everything in memory only."""
    restore_messages: bool = True
    """Keep messages and notifications across a restart. It has no effect without a store, or with a database."""
    database_log: bool = False
    """With a database, append changes of queues and services to a log in the folder of the logs, too."""

    # Permissions
    new_queues: bool = True
    create_password: str | None = field(default=None, repr=False)
    accept_service_credentials: bool = True
    lowest_version: int = LOWEST_VERSION
    highest_version: int = HIGHEST_VERSION

    # Queues and messages
    max_queues: int = 10_000_000
    """Queues that may exist; then NEW is refused."""
    message_quota: int = 128
    message_ttl: float | None = 21 * DAY
    message_expiry_interval: float = 7200.0
    expire_messages_on_start: bool = True
    expire_messages_on_send: bool = False

    # Notifications
    notification_quota: int = 128
    """Notifications stored for a notifier, at least as many as messages. Beyond that the oldest are removed."""
    notification_ttl: float = DAY
    notification_expiry_interval: float = 3600.0
    notification_interval: float = 1.5
    """Seconds between delivery passes; 0 delivers at once."""

    notification_confirm_after: float = 5.0
    """A notification whose bytes the notifier's system has acknowledged is still kept for this long."""

    # Connections
    end_interval: float = 15.0
    """Seconds between flushes of END, ENDS and DELD; 0 sends them at once."""
    hello_seconds: float = 120.0
    inactive_ttl: float | None = 21_600.0

    proxy: SmpProxySettings = field(default_factory=SmpProxySettings)
    direct: SmpDirectSettings = field(default_factory=SmpDirectSettings)
    names: SmpNameSettings = field(default_factory=SmpNameSettings)

    # Operation
    daily_block_queue_quota: int = 20
    """Queues that may be blocked in a day (UTC); 0 for any number, -1 for none."""
    statistics_file: Path | None = Path("smp-server-stats.log")
    """Keeps statistics across restarts; a relative path starts at the store's folder."""
    prometheus_file: Path = Path("smp-server-metrics.txt")
    """In the folder of the store, if the path is relative."""
