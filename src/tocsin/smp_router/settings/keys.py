"""Every key of `smp-server.ini`: its section, its values, and its setting (smp.md 10.3).

Sections and keys outside `[TOCSIN]` are the reference's (`iniFileContent` in Server/Main/Init.hs).
"""

from __future__ import annotations

from typing import Final

from tocsin.operate.settings.router_keys import (
    event_log_keys,
    host_keys,
    password_keys,
    slow_client_keys,
    transport_keys,
)
from tocsin.operate.settings.setting_keys import SettingKey
from tocsin.operate.settings.setting_values import (
    CREATE_PASSWORD,
    HOST,
    HOSTS,
    ON_OFF,
    PATH,
    PORT,
    TEXT,
    ValueKind,
    duration,
    or_off,
    unavailable,
    whole_number,
)
from tocsin.smp_router.settings.direct_keys import direct_keys
from tocsin.smp_router.settings.name_keys import name_keys
from tocsin.smp_router.settings.settings import DAY, HIGHEST_VERSION, LOWEST_VERSION


class SmpKey(SettingKey):
    """Its setting is a field of SmpSettings, or a field of `proxy`, `direct` or `names` in it."""

    __slots__ = ()
    environment_prefix = "TOCSIN_SMP_"


_VERSION: Final = whole_number(LOWEST_VERSION, HIGHEST_VERSION)
_ONLY_MEMORY: Final = "the reference's tables are not read; for PostgreSQL set `database_url` in [TOCSIN]"
_NO_WEB: Final = "Tocsin serves no web pages"

_STORE_LOG: Final = (
    SmpKey(
        "STORE_LOG", "enable", ON_OFF, "Keep queues in a log that survives restarts.", "store", switch=True
    ),
    SmpKey(
        "STORE_LOG",
        "store_queues",
        unavailable("memory", because=_ONLY_MEMORY),
        "Where queues are: memory.",
        shown="memory",
    ),
    SmpKey(
        "STORE_LOG",
        "store_messages",
        unavailable("memory", because=_ONLY_MEMORY),
        "Where messages are: memory.",
        shown="memory",
    ),
    SmpKey(
        "STORE_LOG",
        "restore_messages",
        ON_OFF,
        "Keep messages and notifications across restarts too. Off: their logs are set aside and not written.",
        "restore_messages",
    ),
    SmpKey(
        "STORE_LOG",
        "expire_messages_days",
        duration(unit=DAY, name="days"),
        "Days after which messages that nobody fetched are removed.",
        "message_ttl",
    ),
    SmpKey(
        "STORE_LOG",
        "expire_messages_on_start",
        ON_OFF,
        "Remove old messages when the router starts.",
        "expire_messages_on_start",
    ),
    SmpKey(
        "STORE_LOG",
        "expire_messages_on_send",
        ON_OFF,
        "Remove old messages of a queue when one is sent to it.",
        "expire_messages_on_send",
    ),
    SmpKey(
        "STORE_LOG",
        "expire_ntfs_hours",
        duration(unit=3600.0, name="hours"),
        "Hours after which notifications that nobody fetched are removed.",
        "notification_ttl",
    ),
    SmpKey(
        "STORE_LOG",
        "log_stats",
        ON_OFF,
        "Write a line of statistics every day. See also statistics_file.",
        "log_stats",
    ),
    SmpKey(
        "STORE_LOG",
        "prometheus_interval",
        or_off(duration()),
        "Seconds between updates of a file with Prometheus metrics. See also prometheus_port.",
        "prometheus_interval",
    ),
    SmpKey(
        "STORE_LOG",
        "db_store_log",
        ON_OFF,
        "With database_url, append changes of queues and services to the store log as well.",
        "database_log",
    ),
    # For PostgreSQL only, which store_queues and store_messages refuse.
    *(
        SmpKey("STORE_LOG", name, TEXT, secret=name == "db_connection")
        for name in ("db_connection", "db_schema", "db_pool_size", "db_deleted_ttl")
    ),
)

_AUTH: Final = (
    SmpKey("AUTH", "new_queues", ON_OFF, "Let clients create queues.", "new_queues"),
    SmpKey(
        "AUTH",
        "create_password",
        CREATE_PASSWORD,
        "Required to create queues and to use the proxy. It is part of the address: smp://fingerprint:password@host",
        "create_password",
        secret=True,
    ),
    *password_keys(SmpKey, "For reading statistics and blocking queues at the control port."),
    SmpKey(
        "AUTH",
        "daily_block_queue_quota",
        whole_number(-1),
        "How many queues may be blocked in a day (UTC); 0 for any number, -1 for none.",
        "daily_block_queue_quota",
    ),
)

_TRANSPORT: Final = (
    *transport_keys(SmpKey, 5224),
    SmpKey(
        "TRANSPORT",
        "accept_service_credentials",
        ON_OFF,
        "Let clients with certificates subscribe as services.",
        "accept_service_credentials",
    ),
)

_PROXY: Final = (
    *host_keys(
        SmpKey,
        "PROXY",
        "proxy",
        "other routers",
        "Domains of your own relays; the metrics count them separately.",
    ),
    SmpKey(
        "PROXY",
        "client_concurrency",
        whole_number(1, 100_000),
        "Commands of one client that are forwarded at the same time.",
        "proxy.client_concurrency",
    ),
)

_INACTIVE_CLIENTS: Final = (
    SmpKey(
        "INACTIVE_CLIENTS",
        "disconnect",
        ON_OFF,
        "Disconnect clients without subscriptions that are silent.",
        "inactive_ttl",
        switch=True,
    ),
    SmpKey("INACTIVE_CLIENTS", "ttl", duration(), "... for this many seconds,", "inactive_ttl"),
    SmpKey(
        "INACTIVE_CLIENTS",
        "check_interval",
        duration(),
        "... checked at this interval in seconds.",
        "inactive_check_interval",
    ),
)

_WEB: Final = (
    SmpKey("WEB", "static_path", TEXT),
    SmpKey("WEB", "http", unavailable("off", because=_NO_WEB)),
    SmpKey("WEB", "https", unavailable("off", because=_NO_WEB)),
    SmpKey("WEB", "cert", TEXT),
    SmpKey("WEB", "key", TEXT),
)

# Shown on the web page that we do not have.
_INFORMATION: Final = tuple(
    SmpKey("INFORMATION", name, TEXT)
    for name in (
        *("source_code", "usage_conditions", "condition_amendments", "server_country"),
        *("operator", "operator_country", "website", "hosting", "hosting_country", "hosting_type"),
        *("admin_simplex", "admin_email", "admin_pgp", "admin_pgp_fingerprint"),
        *("complaints_simplex", "complaints_email", "complaints_pgp", "complaints_pgp_fingerprint"),
    )
)


def _own(
    name: str, kind: ValueKind, about: str, setting: str | None = None, shown: str | None = None
) -> SmpKey:
    return SmpKey("TOCSIN", name, kind, about, setting or name, shown=shown)


_TOCSIN: Final = (
    _own("listen", HOSTS, "Addresses to listen on.", "hosts"),
    _own(
        "credentials",
        PATH,
        "Folder of the certificates; a relative path starts at this file's folder.",
        shown=".",
    ),
    _own("store_path", PATH, "Folder of the logs; a relative path starts at this file's folder.", "store"),
    _own("lowest_version", _VERSION, "Oldest SMP version offered."),
    _own("highest_version", _VERSION, "Newest SMP version offered."),
    _own("accept_without_alpn", ON_OFF, "Serve clients that offer no ALPN, with version 6."),
    _own(
        "max_queues",
        whole_number(1, 1_000_000_000),
        "Most queues that may exist; further ones are refused. A million take about 1 GiB.",
    ),
    _own("message_quota", whole_number(1, 1_000_000), "Messages a queue holds."),
    _own(
        "message_ttl",
        or_off(duration()),
        "Overrides expire_messages_days, in seconds; off keeps messages forever.",
    ),
    _own("message_expiry_interval", duration(), "Seconds between removals of old messages."),
    _own(
        "notification_quota",
        whole_number(1, 1_000_000),
        "Notifications stored for a queue, at least message_quota; beyond it the oldest are removed.",
    ),
    _own("notification_ttl", duration(), "Overrides expire_ntfs_hours, in seconds."),
    _own("notification_expiry_interval", duration(), "Seconds between removals of old notifications."),
    _own(
        "notification_interval",
        duration(zero=True),
        "Seconds between deliveries of notifications; 0 delivers each at once.",
    ),
    _own(
        "notification_confirm_after",
        duration(zero=True),
        "Seconds to keep a notification, to send it again, after the receiver's system has acknowledged it.",
    ),
    _own(
        "end_interval",
        duration(zero=True),
        "Seconds between batches of END, ENDS and DELD; 0 sends each at once.",
    ),
    _own("tls_handshake_seconds", duration(), "Time limit of a TLS handshake, in seconds."),
    _own("hello_seconds", duration(), "Time limit of the SMP handshake, in seconds."),
    *slow_client_keys(_own),
    _own(
        "max_connections",
        whole_number(1, 1_000_000),
        "Most connections at a time; others are closed at once.",
    ),
    _own(
        "drain_seconds",
        duration(zero=True),
        "Seconds that clients get to read the rest when the router stops.",
    ),
    _own("proxy", ON_OFF, "Forward commands to other routers.", "proxy.enabled"),
    _own("proxy_connect_timeout", duration(), "Seconds to reach another router.", "proxy.connect_timeout"),
    _own("proxy_response_timeout", duration(), "Seconds another router may take.", "proxy.response_timeout"),
    _own(
        "proxy_remember_failure",
        duration(zero=True),
        "Seconds during which a router that could not be reached is not tried again.",
        "proxy.remember_failure",
    ),
    _own(
        "proxy_public_relays_only",
        ON_OFF,
        "Do not try routers at loopback and private addresses, so that proxy users cannot probe your network.",
        "proxy.public_relays_only",
    ),
    _own(
        "proxy_client_connects",
        whole_number(1, 100_000),
        "Routers that one client may make this router connect to at the same time; further requests wait.",
        "proxy.client_connects",
    ),
    _own(
        "proxy_max_relays",
        whole_number(1, 100_000),
        "Most connections to routers at a time; beyond it the one unused for longest is closed.",
        "proxy.max_relays",
    ),
    _own(
        "proxy_relay_idle",
        duration(),
        "Seconds after which the connection to a router that nobody used is closed.",
        "proxy.relay_idle",
    ),
    *direct_keys(_own),
    _own(
        "statistics_file",
        or_off(PATH),
        "Keep statistics across restarts in this file; a relative path starts at the folder of the logs.",
    ),
    _own(
        "prometheus_file",
        PATH,
        "The file of prometheus_interval; a relative path starts at the folder of the logs.",
    ),
    _own("prometheus_port", or_off(PORT), "Serve Prometheus metrics and health on this port."),
    SmpKey(
        "TOCSIN",
        "database_url",
        TEXT,
        "Keep queues, messages and notifications in PostgreSQL instead of logs: postgresql://user@host/database. "
        "TLS to another machine is verified, unless the URL has sslmode",
        "database_url",
        secret=True,
    ),
    _own("prometheus_host", HOST, "Address for prometheus_port. It has no password: keep it private."),
    *event_log_keys(_own),
)

SMP_KEYS: Final = (
    *_INFORMATION,
    *_STORE_LOG,
    *_AUTH,
    *_TRANSPORT,
    *_PROXY,
    *name_keys(SmpKey),
    *_INACTIVE_CLIENTS,
    *_WEB,
    *_TOCSIN,
)
