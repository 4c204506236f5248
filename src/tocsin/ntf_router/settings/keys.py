"""Every key of `ntf-server.ini`: its section, its values, and its setting (ntf.md 4.15).

Sections and keys outside `[TOCSIN]` are the reference's (`ntfServerCLI` in Notifications/Server/Main.hs).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from tocsin.errors import ConfigError, DecodeError
from tocsin.ntf_router.delivery.channels.addresses import check_address
from tocsin.ntf_router.settings.settings import (
    HIGHEST_SMP_VERSION,
    HIGHEST_VERSION,
    LOWEST_SMP_VERSION,
    LOWEST_VERSION,
    DeliveryEngine,
    StoreKind,
)
from tocsin.operate.settings.router_keys import (
    event_log_keys,
    host_keys,
    password_keys,
    slow_client_keys,
    transport_keys,
)
from tocsin.operate.settings.setting_keys import SettingKey
from tocsin.operate.settings.setting_values import (
    HOST,
    HOSTS,
    NAME,
    ON_OFF,
    PATH,
    PORT,
    SCHEMA,
    TEXT,
    ValueKind,
    choice,
    duration,
    fraction,
    or_off,
    whole_number,
)
from tocsin.protocol.ntf.web_push_tokens import parse_push_service


class NtfSettingKey(SettingKey):
    """Its setting is a field of NtfSettings, with dots for fields of records in it."""

    __slots__ = ()
    environment_prefix = "TOCSIN_NTF_"


_STORE_LOG: Final = (
    NtfSettingKey(
        "STORE_LOG",
        "enable",
        ON_OFF,
        "Keep tokens, subscriptions and notifications in a log that survives restarts.",
        "store_log",
    ),
    NtfSettingKey(
        "STORE_LOG",
        "db_connection",
        TEXT,
        "Keep them in PostgreSQL instead: postgresql://user@host/database. "
        "TLS to another machine is verified, unless the URL has sslmode",
        "database_url",
        secret=True,
    ),
    NtfSettingKey("STORE_LOG", "db_schema", SCHEMA, "Schema of our tables.", "database_schema"),
    NtfSettingKey(
        "STORE_LOG",
        "db_pool_size",
        whole_number(1, 1000),
        "Connections in each of two pools: one for devices, one for the background.",
        "database_pool",
    ),
    NtfSettingKey("STORE_LOG", "db_deleted_ttl", TEXT),  # the reference does not use it either
    NtfSettingKey(
        "STORE_LOG",
        "log_stats",
        ON_OFF,
        "Write a line of statistics every day. See also statistics_file.",
        "log_stats",
    ),
    NtfSettingKey(
        "STORE_LOG",
        "prometheus_interval",
        or_off(duration()),
        "Seconds between updates of a file with Prometheus metrics; 60 is usual. See also prometheus_port.",
        "prometheus_interval",
    ),
)

_AUTH: Final = password_keys(NtfSettingKey, "For the same without the names of your SMP routers.")
_TRANSPORT: Final = transport_keys(NtfSettingKey, 5227)
_SUBSCRIBER: Final = (
    *host_keys(
        NtfSettingKey,
        "SUBSCRIBER",
        "subscriber",
        "SMP routers",
        "Domains of your own SMP routers; the metrics count each of them.",
    ),
    NtfSettingKey(
        "SUBSCRIBER",
        "use_service_credentials",
        ON_OFF,
        "Subscribe to all queues of an SMP router with one command after the first time.",
        "subscriber.use_service_credentials",
    ),
)

_INACTIVE_CLIENTS: Final = (
    NtfSettingKey(
        "INACTIVE_CLIENTS",
        "disconnect",
        ON_OFF,
        "Disconnect clients that are silent. Needs both of the following keys.",
        "disconnect_inactive",
    ),
    NtfSettingKey(
        "INACTIVE_CLIENTS",
        "ttl",
        duration(),
        "... for this many seconds,",
        "inactive_ttl",
        shown="43200",
    ),
    NtfSettingKey(
        "INACTIVE_CLIENTS",
        "check_interval",
        duration(),
        "... checked at this interval in seconds.",
        "inactive_check_interval",
    ),
)


def _own(
    name: str,
    kind: ValueKind,
    about: str,
    setting: str | None = None,
    *,
    shown: str | None = None,
    also: str = "",
) -> NtfSettingKey:
    return NtfSettingKey("TOCSIN", name, kind, about, setting or name, shown=shown, also=also)


_VERSION: Final = whole_number(LOWEST_VERSION, HIGHEST_VERSION)


def _read_channel(text: str) -> str:
    try:
        check_address(text)
    except ConfigError as error:
        raise ValueError from error
    return text


_CHANNEL: Final = ValueKind(
    "an address such as tls://host:port, s3://bucket/folder or kafka://broker:port/name", _read_channel
)
_COUNT: Final = whole_number(1, 1_000_000)
_RELATIVE: Final = "a relative path starts at this file's folder"
_CONTACT_FORM: Final = re.compile(r"mailto:[!-~]+@[!-~]+|https://[!-~]+")
MAX_CONTACT_CHARACTERS: Final = 200

_PLACES: Final = (
    _own("listen", HOSTS, "Addresses to listen on.", "hosts"),
    _own("credentials", PATH, f"Folder of the certificates; {_RELATIVE}.", shown="."),
    _own(
        "certificate_file",
        or_off(PATH),
        "TLS certificate, if it is not server.crt in that folder. A whole chain needs no authority_file.",
    ),
    _own("private_key_file", or_off(PATH), "Its key, if it is not server.key."),
    _own("authority_file", or_off(PATH), "Identity certificate, if it is not ca.crt."),
    _own(
        "store_path",
        PATH,
        f"Folder of logs, statistics and the embedded database; {_RELATIVE}.",
        "store",
        also="NTF_SERVER_LOG_PATH",
    ),
    _own(
        "store",
        choice(memory=StoreKind.MEMORY, embedded=StoreKind.EMBEDDED, url=StoreKind.URL),
        "memory (with a log), embedded (a PostgreSQL that the router runs in store_path), or url (the database of "
        "db_connection, and the default if that is set).",
        "store_kind",
    ),
    _own(
        "fleet",
        ON_OFF,
        "Several processes with this identity serve at the same time, with one database (db_connection).",
    ),
    _own(
        "fleet_lease",
        duration(),
        "Seconds without a sign of life after which others take over what a process of the fleet did.",
    ),
    _own(
        "fleet_patience",
        duration(),
        "Seconds for which a process of the fleet tries to reach an SMP router before another one may.",
    ),
    _own("lowest_version", _VERSION, "Oldest NTF version offered."),
    _own("highest_version", _VERSION, "Newest NTF version offered."),
    _own("accept_without_alpn", ON_OFF, "Serve clients that offer no ALPN, with version 1."),
    _own("tls_handshake_seconds", duration(), "Time limit of a TLS handshake, in seconds."),
    _own("hello_seconds", duration(), "Time limit of the NTF handshake, in seconds."),
    _own(
        "registrations_per_connection",
        _COUNT,
        "TNEW and TRPL commands that one connection may send at once; further ones get QUOTA, except …",
    ),
    _own("registration_interval", duration(), "… one for each of these intervals, in seconds."),
    _own(
        "registrations_per_device",
        _COUNT,
        "Registrations of one device token in a day that were not verified; further ones get QUOTA.",
    ),
    _own(
        "max_tokens",
        whole_number(1, 1_000_000_000),
        "Most device tokens that may exist; further ones get QUOTA. A million take about 1 GiB.",
    ),
    _own(
        "max_subscriptions",
        whole_number(1, 1_000_000_000),
        "Most subscriptions that may exist; further ones are refused. A million take about 110 MB.",
    ),
    _own(
        "max_subscriptions_per_token",
        _COUNT,
        "Most subscriptions of one device token; further ones are refused.",
    ),
    *slow_client_keys(_own),
    _own("max_connections", _COUNT, "Most connections at a time; others are closed at once."),
    _own(
        "drain_seconds",
        duration(zero=True),
        "Seconds that clients get to read the rest when the router stops.",
    ),
)

NO_HOST: Final = ""
"""The host of an environment of Apple's service that is off."""
_HOST_OR_OFF: Final = replace(
    or_off(HOST), read=lambda text: NO_HOST if text == "off" else HOST.read(text), write=str
)


def _read_contact(text: str) -> str:
    if len(text) > MAX_CONTACT_CHARACTERS or not _CONTACT_FORM.fullmatch(text):
        raise ValueError
    return text


def _read_push_services(text: str) -> tuple[str, ...]:
    if text == "off":
        return ()
    try:
        return tuple(map(parse_push_service, text.split()))
    except DecodeError as error:
        raise ValueError from error


_PUSH_SERVICES: Final = ValueKind(
    "`off`, or host names with spaces between them, each with :port if it is not 443",
    _read_push_services,
    write=lambda services: " ".join(services) or "off",
)
_CONTACT: Final = ValueKind("an address like mailto:you@example.com or https://example.com", _read_contact)

_PUSHES: Final = (
    _own("periodic_interval", duration(), "Seconds between checks for tokens whose periodic push is due."),
    _own(
        "notification_ttl",
        duration(),
        "Seconds after which a notification that could not be pushed has failed.",
        "delivery.notification_ttl",
    ),
    _own(
        "retry_initial",
        duration(),
        "Seconds before the second repetition of a push.",
        "delivery.retry_initial",
    ),
    _own("retry_maximum", duration(), "Most seconds between repetitions.", "delivery.retry_maximum"),
    _own(
        "other_pushes",
        _COUNT,
        "Verification and periodic pushes that wait for each provider; beyond it the oldest is dropped.",
        "delivery.other_pushes",
    ),
    _own(
        "other_push_ttl", duration(), "Seconds for which those pushes are retried.", "delivery.other_push_ttl"
    ),
    _own(
        "verification_burst",
        _COUNT,
        "Verification pushes that one device token gets at once; further ones wait …",
        "delivery.verification_burst",
    ),
    _own(
        "verification_interval",
        duration(),
        "… this many seconds for each.",
        "delivery.verification_interval",
    ),
    _own("delivery_batch", _COUNT, "Tokens read from the store at a time.", "delivery.batch"),
    _own(
        "delivery_engine",
        choice(inline=DeliveryEngine.INLINE, spark=DeliveryEngine.SPARK, both=DeliveryEngine.BOTH),
        "The program that pushes notifications of messages: the router (inline), `tocsin pipeline deliver` (spark), or "
        "each for its share of the tokens (both).",
        "delivery.engine",
    ),
    _own(
        "delivery_share",
        fraction(),
        "The share of the tokens whose notifications that job pushes if both do: 0.1 is a tenth of them.",
        "delivery.share",
    ),
    _own(
        "delivery_choices",
        or_off(PATH),
        "File that keeps your choices of an engine for single tokens (`engine` at the control port) across restarts; a "
        "relative path starts at the folder of the store.",
        "delivery.choices",
    ),
    _own(
        "delivery_handover",
        or_off(PATH),
        f"Folder in which the router hands them over to that job; {_RELATIVE}.",
        "delivery.handover",
    ),
    _own(
        "delivery_handover_address",
        or_off(_CHANNEL),
        "Channel to that job without a shared folder: tls://host:port (the job pulls from here), s3://bucket/folder "
        "or kafka://broker:port/name.",
        "delivery.handover_address",
    ),
    _own(
        "delivery_handover_keys",
        or_off(PATH),
        "Folder of the key that seals them; off: beside that folder, with -keys after its name, or with an address the "
        "key in TOCSIN_HANDOVER_KEY.",
        "delivery.handover_keys",
    ),
    _own(
        "delivery_patience",
        duration(),
        "The router pushes by itself what that job has not answered within this many seconds, until the job is back.",
        "delivery.patience",
    ),
    _own(
        "delivery_push_services",
        _PUSH_SERVICES,
        "Web Push services to which that job pushes, by their hosts, with :port unless it is 443; to all others the "
        "router pushes by itself. Name only services that answer quickly: a batch waits for its slowest answer.",
        "delivery.push_services",
    ),
    _own(
        "apns_key_file",
        or_off(PATH),
        f"Key from Apple (.p8); {_RELATIVE}. APNS_KEY_FILE is read too.",
        "apns.key_file",
        also="APNS_KEY_FILE",
    ),
    _own("apns_key_id", or_off(NAME), "Its id. APNS_KEY_ID is read too.", "apns.key_id", also="APNS_KEY_ID"),
    _own("apns_team_id", NAME, "Team at Apple that the key belongs to.", "apns.team_id"),
    _own("apns_topic", NAME, "Bundle id of the app.", "apns.topic"),
    _own(
        "apns_connections", whole_number(1, 1000), "Connections to each of the following.", "apns.connections"
    ),
    _own("apns_connect_timeout", duration(), "Seconds to connect.", "apns.connect_timeout"),
    _own("apns_request_timeout", duration(), "Seconds for an answer.", "apns.request_timeout"),
    *(
        key
        for name, about in (
            ("prod", "Apple's service for apps from the store"),
            ("dev", "Apple's service for apps under development"),
            ("test", "A service for tests"),
        )
        for key in (
            _own(
                f"apns_{name}_host",
                _HOST_OR_OFF,
                f"{about}; off: its device tokens are refused.",
                f"apns.endpoints.apns_{name}.host",
            ),
            _own(f"apns_{name}_port", PORT, "Its port.", f"apns.endpoints.apns_{name}.port", shown="443"),
            _own(
                f"apns_{name}_ca_file",
                or_off(PATH),
                "Certificates that vouch for it (PEM); off: the system's.",
                f"apns.endpoints.apns_{name}.ca_file",
            ),
        )
    ),
)

_WEB_PUSH: Final = (
    _own(
        "webpush",
        ON_OFF,
        "Push through Web Push services, which UnifiedPush uses; off: device tokens of webpush are refused.",
        "webpush.enabled",
    ),
    _own(
        "webpush_key_file",
        PATH,
        f"Key that identifies this router to them, created at the first start; {_RELATIVE}.",
        "webpush.key_file",
    ),
    _own(
        "webpush_subject",
        or_off(_CONTACT),
        "Your contact address for them: mailto:you@example.com or an https address.",
        "webpush.subject",
    ),
    _own(
        "webpush_ca_file",
        or_off(PATH),
        "Certificates that vouch for them (PEM), besides the system's.",
        "webpush.ca_file",
    ),
    _own("webpush_connections", whole_number(1, 100), "Connections to each host.", "webpush.connections"),
    _own("webpush_hosts", whole_number(1, 10_000), "Hosts that are connected at a time.", "webpush.hosts"),
    _own("webpush_timeout", duration(), "Seconds for an answer.", "webpush.timeout"),
    _own("webpush_rate", whole_number(1, 100_000), "Most pushes a second to one host.", "webpush.rate"),
)

_FCM: Final = (
    _own(
        "fcm_key_file",
        or_off(PATH),
        f"Key file of the service account of your Firebase project (.json); {_RELATIVE}. Off: device tokens of fcm are "
        "refused.",
        "fcm.key_file",
    ),
    _own("fcm_host", NAME, "Host that takes pushes.", "fcm.host"),
    _own("fcm_port", PORT, "Its port.", "fcm.port"),
    _own(
        "fcm_ca_file",
        or_off(PATH),
        "Certificates that vouch for it and for the host of access tokens (PEM); off: the system's.",
        "fcm.ca_file",
    ),
    _own("fcm_connections", whole_number(1, 1000), "Connections to it.", "fcm.connections"),
    _own("fcm_timeout", duration(), "Seconds to connect, and for an answer.", "fcm.timeout"),
)

_SMP_VERSION: Final = whole_number(LOWEST_SMP_VERSION, HIGHEST_SMP_VERSION)
_SMP_ROUTERS: Final = (
    _own(
        "separate_services",
        ON_OFF,
        "With use_service_credentials: show another certificate to each SMP router, so that they cannot tell that it "
        "is the same NTF router. `init` turns it on; `tocsin ntf separate-services` moves an older installation.",
        "subscriber.separate_services",
    ),
    _own(
        "smp_lowest_version",
        _SMP_VERSION,
        "Oldest SMP version that the router speaks with SMP routers.",
        "subscriber.lowest_version",
    ),
    _own(
        "smp_highest_version",
        _SMP_VERSION,
        "Newest SMP version that the router speaks with SMP routers.",
        "subscriber.highest_version",
    ),
    _own("smp_connect_timeout", duration(), "Seconds to reach an SMP router.", "subscriber.connect_timeout"),
    _own("smp_response_timeout", duration(), "Seconds for its answers.", "subscriber.response_timeout"),
    _own(
        "smp_reconnect_initial",
        duration(),
        "Seconds before connecting again, growing to …",
        "subscriber.reconnect_initial",
    ),
    _own("smp_reconnect_maximum", duration(), "… this many.", "subscriber.reconnect_maximum"),
    _own("smp_ping_after", duration(), "Seconds of silence before a PING.", "subscriber.ping_after"),
    _own("smp_batch", _COUNT, "NSUB commands whose answers are awaited together.", "subscriber.batch"),
    _own("smp_page", _COUNT, "Subscriptions read from the store at a time.", "subscriber.page"),
    _own(
        "smp_concurrent_resubscriptions",
        _COUNT,
        "SMP routers that are resubscribed at a time.",
        "subscriber.concurrent_resubscriptions",
    ),
    _own(
        "allow_private_hosts",
        ON_OFF,
        "Also connect to SMP routers and Web Push services at loopback and private addresses: devices could probe "
        "your network.",
        "subscriber.allow_private_hosts",
    ),
    _own(
        "routers_per_token",
        _COUNT,
        "Different SMP routers that one device token may name.",
        "subscriber.routers_per_token",
    ),
    _own(
        "untried_routers_per_token",
        _COUNT,
        "... of which this many may be routers that have never answered.",
        "subscriber.untried_per_token",
    ),
    _own(
        "smp_untried_dials",
        _COUNT,
        "Attempts at a time to connect to SMP routers that have never answered, …",
        "subscriber.untried_dials",
    ),
    _own(
        "smp_untried_dials_per_token",
        _COUNT,
        "… of which this many for routers that one device token named.",
        "subscriber.untried_dials_per_token",
    ),
    _own(
        "smp_untried_maximum",
        duration(),
        "Most seconds between attempts to connect to such a router.",
        "subscriber.untried_maximum",
    ),
)

_OPERATION: Final = (
    _own(
        "statistics_file",
        or_off(PATH),
        "Keep statistics across restarts in this file; a relative path starts at store_path.",
    ),
    _own(
        "statistics_start",
        duration(zero=True),
        "Time of the lines of log_stats, in seconds after 00:00 UTC, …",
    ),
    _own("statistics_interval", duration(), "… and the interval between them in seconds."),
    _own(
        "prometheus_file",
        PATH,
        "The file of prometheus_interval; a relative path starts at store_path.",
    ),
    _own("prometheus_port", or_off(PORT), "Serve Prometheus metrics and health on this port."),
    _own("prometheus_host", HOST, "Address for prometheus_port. It has no password: keep it private."),
    *event_log_keys(_own),
)

_DIRECT: Final = (
    _own(
        "direct_notifications",
        ON_OFF,
        "Direct notifications: one subscription for each SMP router that has them, and acknowledgements. "
        "Devices can use them if [TRANSPORT] host is set.",
        "direct.enabled",
    ),
    _own("direct_key_lifetime", duration(), "Seconds for which such a key is kept.", "direct.key_lifetime"),
    _own("direct_key_rotation", duration(), "… after which the next is made.", "direct.key_rotation"),
    _own(
        "direct_auth_key_rotation",
        duration(),
        "Seconds after which the key for SMP routers is replaced.",
        "direct.auth_key_rotation",
    ),
    _own(
        "direct_deleted_grace",
        duration(zero=True),
        "Seconds for which to keep a queue that its SMP router reported as deleted.",
        "direct.deleted_grace",
    ),
)

NTF_KEYS: Final = (
    *_STORE_LOG,
    *_AUTH,
    *_TRANSPORT,
    *_SUBSCRIBER,
    *_INACTIVE_CLIENTS,
    *_PLACES,
    *_PUSHES,
    *_WEB_PUSH,
    *_FCM,
    *_SMP_ROUTERS,
    *_DIRECT,
    *_OPERATION,
)
