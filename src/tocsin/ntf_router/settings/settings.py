"""All settings of an NTF router (ntf.md 4.11 to 4.15). Times are seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from tocsin.errors import ConfigError
from tocsin.operate.settings.operation_settings import OperationSettings
from tocsin.protocol.smp.versions import SERVICE_HASH_VERSION, SUPPORTED
from tocsin.push.settings import ApnsSettings, FcmSettings, WebPushSettings

DAY: Final = 86_400.0
LOWEST_VERSION: Final = 1
HIGHEST_VERSION: Final = 3
LOWEST_SMP_VERSION: Final = SUPPORTED.lowest
HIGHEST_SMP_VERSION: Final = max(SUPPORTED.highest, SERVICE_HASH_VERSION)


class StoreKind(Enum):
    """Where tokens, subscriptions and notifications are kept."""

    MEMORY = "memory"
    """In memory, with a log in the data folder unless the store log is off."""
    EMBEDDED = "embedded"
    """In a PostgreSQL that the router runs itself, with its files in the data folder."""
    URL = "url"
    """In the operator's PostgreSQL."""


class DeliveryEngine(Enum):
    """The program that pushes notifications of messages."""

    INLINE = "inline"
    """The router itself."""
    SPARK = "spark"
    """The job `tocsin pipeline deliver`, to which the router hands them over."""
    BOTH = "both"
    """Each of the two for its share of the tokens."""


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """Settings of the way from a notification to its push."""

    notification_ttl: float = 21 * DAY
    """A notification that could not be pushed for this long fails as `expired`; the provider keeps it as long.

    As long as the message itself waits at its SMP router: a phone that was off for days still learns of it.
    """
    retry_initial: float = 2.0
    retry_maximum: float = 300.0
    other_pushes: int = 32_768
    """Verification and periodic pushes waiting for each provider; beyond it the oldest is shed."""
    other_push_ttl: float = 600.0
    """Seconds for which verification and periodic pushes are tried again."""
    verification_burst: int = 5
    """Verification pushes that one device token gets at once; further ones wait for their turn."""
    verification_interval: float = 30.0
    """Seconds for which a device token waits for another turn."""
    batch: int = 512
    """Tokens whose pushes are read from the store at a time."""
    engine: DeliveryEngine = DeliveryEngine.INLINE
    share: float = 0.5
    """The part of all tokens whose notifications the job pushes if both engines do."""
    choices: Path | None = None
    """File that keeps the operator's choices for single tokens. Without it they last until the router stops."""
    handover: Path | None = None
    """Folder in which the router and the `deliver` job meet."""
    handover_address: str | None = None
    """Where they meet instead, without a shared folder."""
    handover_keys: Path | None = None
    """Folder of the key that seals what is handed over; none is beside that folder, with `-keys` after its name.

    With an address, none is the key in the environment."""
    patience: float = 20.0
    """Seconds after which the router pushes by itself what the `deliver` job has not answered."""
    push_services: tuple[str, ...] = ()
    """Web Push services to which the job pushes, `host` or `host:port`. The router pushes to all others itself.

    Devices name the services of their endpoints, and a batch of the job waits for its slowest answer, so the operator
    says which ones it may wait for."""


@dataclass(frozen=True, slots=True)
class SubscriberSettings:
    """Connections to SMP routers."""

    lowest_version: int = SUPPORTED.lowest
    highest_version: int = SUPPORTED.highest
    """SMP versions that this router speaks as a client."""
    connect_timeout: float = 45.0
    response_timeout: float = 30.0
    reconnect_initial: float = 1.0
    reconnect_maximum: float = 10.0
    ping_after: float = 60.0
    batch: int = 900
    """NSUBs whose answers are awaited together."""
    page: int = 90_000
    """Subscriptions read from the store at a time."""
    concurrent_resubscriptions: int = 64
    """SMP routers that are resubscribed at a time."""
    use_service_credentials: bool = False
    separate_services: bool = False
    """Show a certificate of its own to each SMP router, instead of this router's own one to all."""
    own_server_domains: tuple[str, ...] = ()
    socks_proxy: str | None = None
    """host:port"""
    socks_onion_only: bool = True
    prefer_onion: bool = False
    """Try the .onion hosts of an SMP router first."""
    required_host_mode: bool = False
    """Hosts of the other kind are not tried at all."""
    allow_private_hosts: bool = False
    """Also loopback, private and link-local addresses: only for tests and closed networks."""
    routers_per_token: int = 100
    """Different SMP routers that one device token may name."""
    untried_per_token: int = 20
    """The number of them that never answered."""
    untried_dials: int = 32
    """Connection attempts at a time to SMP routers that never answered."""
    untried_dials_per_token: int = 2
    untried_maximum: float = 600.0
    """The longest delay between attempts to reach a router that never answered."""


@dataclass(frozen=True, slots=True)
class NtfDirectSettings:
    """Direct notifications (docs/direct-notifications.md)."""

    enabled: bool = True
    key_lifetime: float = 30 * DAY
    """A key to which devices seal their packets is erased after this time."""
    key_rotation: float = 7 * DAY
    """A new one is made so often."""
    auth_key_rotation: float = 90 * DAY
    """The key that speaks for this router at SMP routers is replaced so often."""
    deleted_grace: float = DAY
    """A queue that its SMP router calls deleted is kept for this long, unless its device says so too."""


@dataclass(frozen=True, slots=True)
class NtfSettings(OperationSettings):
    """The behaviour of an NTF router. The defaults are those of the reference's executable."""

    # Where
    ports: tuple[int, ...] = (443,)
    credentials: Path = Path("/etc/opt/simplex-notifications")
    """Folder of ca.crt, server.crt, server.key."""
    certificate_file: Path | None = None
    """Instead of server.crt in the folder; these three need not have the names of the reference."""
    private_key_file: Path | None = None
    authority_file: Path | None = None
    store: Path | None = Path("/var/opt/simplex-notifications")
    """Folder of logs and of the embedded database; None keeps everything in memory only."""
    store_kind: StoreKind = StoreKind.MEMORY
    store_log: bool = True
    """Changes are logged in the folder, so that they survive a restart; of no effect with a database."""
    database_schema: str = "ntf_server"
    database_pool: int = 10
    """Connections of each of the two pools: for clients and notifications, and for the background."""
    fleet: bool = False
    """Other processes with the same identity serve with the same database, at the same time."""
    fleet_lease: float = 5.0
    """A process of a fleet that does not answer for this long is taken to be gone."""
    fleet_patience: float = 5.0
    """Seconds for which a process of a fleet tries to reach an SMP router before another one may."""

    # Who may do what
    lowest_version: int = LOWEST_VERSION
    highest_version: int = HIGHEST_VERSION

    # Connections of devices
    registrations_per_connection: int = 100
    """TNEW and TRPL that one connection may send at once, and then one for each `registration_interval`."""
    registration_interval: float = 1.0
    registrations_per_device: int = 5
    """Registrations of one device token in a day that nobody has verified; beyond it TNEW and TRPL get QUOTA."""
    max_tokens: int = 5_000_000
    """Device tokens that may exist; beyond it TNEW of a new one gets QUOTA. A million take about 1 GiB of memory."""
    max_subscriptions: int = 50_000_000
    """Subscriptions that may exist; beyond it SNEW gets QUOTA, and packets the fate Q. A million take 110 MB."""
    max_subscriptions_per_token: int = 20_000
    hello_seconds: float = 60.0
    disconnect_inactive: bool = False
    """The key of the file. The router only reads `inactive_ttl`, which is None if this is off."""
    inactive_ttl: float | None = None

    # Pushes
    periodic_interval: float = 300.0
    """Seconds between searches for tokens whose periodic push is due."""
    apns: ApnsSettings = field(default_factory=ApnsSettings)
    webpush: WebPushSettings = field(default_factory=WebPushSettings)
    fcm: FcmSettings = field(default_factory=FcmSettings)
    delivery: DeliverySettings = field(default_factory=DeliverySettings)
    subscriber: SubscriberSettings = field(default_factory=SubscriberSettings)
    direct: NtfDirectSettings = field(default_factory=NtfDirectSettings)

    # Operation
    statistics_file: Path | None = Path("ntf-server-stats.log")
    """Keeps statistics across restarts; a relative path starts at the store's folder."""
    prometheus_file: Path = Path("ntf-server-metrics.txt")
    """In the folder of the store, if the path is relative."""
    statistics_start: float = 0.0
    """Time of day (UTC) of the first such line, in seconds; the next day's if it is past."""
    statistics_interval: float = DAY


def check_fleet(settings: NtfSettings) -> None:
    """Raises ConfigError for settings that do not go with a fleet."""
    if not settings.fleet:
        return
    if settings.store_kind is not StoreKind.URL:
        raise ConfigError(
            "fleet: on needs a PostgreSQL database that all its processes reach: set [STORE_LOG] db_connection"
        )
    if settings.delivery.engine is not DeliveryEngine.INLINE:
        raise ConfigError(
            "the processes of a fleet push by themselves: set delivery_engine: inline, or fleet: off"
        )
