"""`ntf-server.ini` and the environment: every key, and what is said about wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tocsin.errors import ConfigError
from tocsin.ntf_router.settings.files import NTF_FILE, load_ntf_settings
from tocsin.ntf_router.settings.keys import NTF_KEYS, NtfSettingKey
from tocsin.ntf_router.settings.settings import (
    HIGHEST_VERSION,
    LOWEST_VERSION,
    DeliveryEngine,
    DeliverySettings,
    NtfDirectSettings,
    NtfSettings,
    StoreKind,
    SubscriberSettings,
)
from tocsin.protocol.ntf.versions import SUPPORTED
from tocsin.push.settings import ApnsEndpoint, ApnsSettings, FcmSettings, WebPushSettings

Load = Callable[..., NtfSettings]
URL = "postgresql://ntf:hid:den@/ntf"

# Section, key, a text that is not the default, setting, its value, a wrong text.
ROWS: list[tuple[str, str, str, str | None, Any, str | None]] = [
    ("STORE_LOG", "enable", "off", "store_log", False, "yes"),
    ("STORE_LOG", "db_connection", URL, "database_url", URL, None),
    ("STORE_LOG", "db_schema", "other", "database_schema", "other", "a;b"),
    ("STORE_LOG", "db_pool_size", "3", "database_pool", 3, "0"),
    ("STORE_LOG", "db_deleted_ttl", "1814400", None, None, None),
    ("STORE_LOG", "log_stats", "on", "log_stats", True, "1"),
    ("STORE_LOG", "prometheus_interval", "60", "prometheus_interval", 60.0, "0"),
    ("AUTH", "control_port_admin_password", "x y", "control_port_admin_password", "x y", ""),
    ("AUTH", "control_port_user_password", "z", "control_port_user_password", "z", ""),
    ("TRANSPORT", "host", "a.example,1.2.3.4", "public_hosts", ("a.example", "1.2.3.4"), "a b"),
    ("TRANSPORT", "port", "8443,9443", "ports", (8443, 9443), "443,443"),
    ("TRANSPORT", "log_tls_errors", "on", "log_tls_errors", True, "true"),
    ("TRANSPORT", "websockets", "off", None, None, "on"),
    ("TRANSPORT", "control_port", "5227", "control_port", 5227, "65536"),
    ("SUBSCRIBER", "host_mode", "onion", "subscriber.prefer_onion", True, "private"),
    ("SUBSCRIBER", "required_host_mode", "on", "subscriber.required_host_mode", True, "x"),
    ("SUBSCRIBER", "socks_proxy", "localhost:9050", "subscriber.socks_proxy", "localhost:9050", "9050"),
    ("SUBSCRIBER", "socks_mode", "always", "subscriber.socks_onion_only", False, "never"),
    (
        "SUBSCRIBER",
        "own_server_domains",
        "a.test b.test",
        "subscriber.own_server_domains",
        ("a.test", "b.test"),
        "a/b",
    ),
    ("SUBSCRIBER", "use_service_credentials", "on", "subscriber.use_service_credentials", True, "x"),
    ("INACTIVE_CLIENTS", "disconnect", "on", "disconnect_inactive", True, "x"),
    ("INACTIVE_CLIENTS", "ttl", "60", "inactive_ttl", 60.0, "0"),
    ("INACTIVE_CLIENTS", "check_interval", "5", "inactive_check_interval", 5.0, "nan"),
    ("TOCSIN", "listen", "127.0.0.1,::1", "hosts", ("127.0.0.1", "::1"), ""),
    ("TOCSIN", "credentials", "/somewhere", "credentials", Path("/somewhere"), ""),
    ("TOCSIN", "certificate_file", "/c.crt", "certificate_file", Path("/c.crt"), ""),
    ("TOCSIN", "private_key_file", "/c.key", "private_key_file", Path("/c.key"), ""),
    ("TOCSIN", "authority_file", "/ca.crt", "authority_file", Path("/ca.crt"), ""),
    ("TOCSIN", "store_path", "/elsewhere", "store", Path("/elsewhere"), ""),
    ("TOCSIN", "store", "embedded", "store_kind", StoreKind.EMBEDDED, "sqlite"),
    ("TOCSIN", "fleet", "on", "fleet", True, "x"),
    ("TOCSIN", "fleet_lease", "7", "fleet_lease", 7.0, "0"),
    ("TOCSIN", "fleet_patience", "7", "fleet_patience", 7.0, "0"),
    ("TOCSIN", "lowest_version", "2", "lowest_version", 2, "0"),
    ("TOCSIN", "highest_version", "2", "highest_version", 2, "4"),
    ("TOCSIN", "accept_without_alpn", "off", "accept_without_alpn", False, "none"),
    ("TOCSIN", "tls_handshake_seconds", "5", "tls_handshake_seconds", 5.0, "0"),
    ("TOCSIN", "hello_seconds", "5", "hello_seconds", 5.0, "inf"),
    ("TOCSIN", "registrations_per_connection", "7", "registrations_per_connection", 7, "0"),
    ("TOCSIN", "registration_interval", "0.5", "registration_interval", 0.5, "0"),
    ("TOCSIN", "registrations_per_device", "2", "registrations_per_device", 2, "0"),
    ("TOCSIN", "max_tokens", "7", "max_tokens", 7, "0"),
    ("TOCSIN", "max_subscriptions", "8", "max_subscriptions", 8, "0"),
    ("TOCSIN", "max_subscriptions_per_token", "9", "max_subscriptions_per_token", 9, "0"),
    ("TOCSIN", "write_queue_blocks", "4", "write_queue_blocks", 4, "0"),
    ("TOCSIN", "write_stall_seconds", "30", "write_stall_seconds", 30.0, "0"),
    ("TOCSIN", "max_waiting_bytes", "5000000", "max_waiting_bytes", 5_000_000, "1"),
    ("TOCSIN", "max_connections", "10", "max_connections", 10, "10.5"),
    ("TOCSIN", "drain_seconds", "0", "drain_seconds", 0.0, "-1"),
    ("TOCSIN", "periodic_interval", "1", "periodic_interval", 1.0, "0"),
    ("TOCSIN", "notification_ttl", "60", "delivery.notification_ttl", 60.0, "off"),
    ("TOCSIN", "retry_initial", "0.1", "delivery.retry_initial", 0.1, "0"),
    ("TOCSIN", "retry_maximum", "10", "delivery.retry_maximum", 10.0, "0"),
    ("TOCSIN", "other_pushes", "10", "delivery.other_pushes", 10, "0"),
    ("TOCSIN", "other_push_ttl", "10", "delivery.other_push_ttl", 10.0, "0"),
    ("TOCSIN", "verification_burst", "3", "delivery.verification_burst", 3, "0"),
    ("TOCSIN", "verification_interval", "10", "delivery.verification_interval", 10.0, "0"),
    ("TOCSIN", "delivery_batch", "10", "delivery.batch", 10, "0"),
    ("TOCSIN", "delivery_engine", "spark", "delivery.engine", DeliveryEngine.SPARK, "flink"),
    ("TOCSIN", "delivery_share", "0.25", "delivery.share", 0.25, "1.1"),
    ("TOCSIN", "delivery_choices", "/engines", "delivery.choices", Path("/engines"), ""),
    ("TOCSIN", "delivery_handover", "/handover", "delivery.handover", Path("/handover"), ""),
    ("TOCSIN", "delivery_handover_address", "tls://h:1", "delivery.handover_address", "tls://h:1", "ftp://h"),
    ("TOCSIN", "delivery_handover_keys", "/keys", "delivery.handover_keys", Path("/keys"), ""),
    ("TOCSIN", "delivery_patience", "7.5", "delivery.patience", 7.5, "0"),
    (
        "TOCSIN",
        "delivery_push_services",
        "a.test b.test:8443",
        "delivery.push_services",
        ("a.test", "b.test:8443"),
        "https://a.test",
    ),
    ("TOCSIN", "apns_key_file", "/k.p8", "apns.key_file", Path("/k.p8"), ""),
    ("TOCSIN", "apns_key_id", "ABC123", "apns.key_id", "ABC123", "a b"),
    ("TOCSIN", "apns_team_id", "TEAM", "apns.team_id", "TEAM", ""),
    ("TOCSIN", "apns_topic", "an.app", "apns.topic", "an.app", "a/b"),
    ("TOCSIN", "apns_connections", "1", "apns.connections", 1, "0"),
    ("TOCSIN", "apns_connect_timeout", "3", "apns.connect_timeout", 3.0, "0"),
    ("TOCSIN", "apns_request_timeout", "4", "apns.request_timeout", 4.0, "0"),
    ("TOCSIN", "apns_prod_host", "a.test", "apns.endpoints.apns_prod.host", "a.test", "a b"),
    ("TOCSIN", "apns_prod_port", "2197", "apns.endpoints.apns_prod.port", 2197, "x"),
    ("TOCSIN", "apns_prod_ca_file", "/ca.pem", "apns.endpoints.apns_prod.ca_file", Path("/ca.pem"), ""),
    ("TOCSIN", "apns_dev_host", "b.test", "apns.endpoints.apns_dev.host", "b.test", "a b"),
    ("TOCSIN", "apns_dev_port", "2198", "apns.endpoints.apns_dev.port", 2198, "x"),
    ("TOCSIN", "apns_dev_ca_file", "/cb.pem", "apns.endpoints.apns_dev.ca_file", Path("/cb.pem"), ""),
    ("TOCSIN", "apns_test_host", "localhost", "apns.endpoints.apns_test.host", "localhost", "a b"),
    ("TOCSIN", "apns_test_port", "6010", "apns.endpoints.apns_test.port", 6010, "x"),
    ("TOCSIN", "apns_test_ca_file", "/cc.pem", "apns.endpoints.apns_test.ca_file", Path("/cc.pem"), ""),
    ("TOCSIN", "webpush", "on", "webpush.enabled", True, "yes"),
    ("TOCSIN", "webpush_key_file", "/v.pem", "webpush.key_file", Path("/v.pem"), ""),
    ("TOCSIN", "webpush_subject", "mailto:a@b.test", "webpush.subject", "mailto:a@b.test", "a@b.test"),
    ("TOCSIN", "webpush_ca_file", "/w.pem", "webpush.ca_file", Path("/w.pem"), ""),
    ("TOCSIN", "webpush_connections", "2", "webpush.connections", 2, "0"),
    ("TOCSIN", "webpush_hosts", "3", "webpush.hosts", 3, "0"),
    ("TOCSIN", "webpush_timeout", "3", "webpush.timeout", 3.0, "0"),
    ("TOCSIN", "webpush_rate", "7", "webpush.rate", 7, "0"),
    ("TOCSIN", "fcm_key_file", "/f.json", "fcm.key_file", Path("/f.json"), ""),
    ("TOCSIN", "fcm_host", "fcm.test", "fcm.host", "fcm.test", "a/b"),
    ("TOCSIN", "fcm_port", "6020", "fcm.port", 6020, "x"),
    ("TOCSIN", "fcm_ca_file", "/f.pem", "fcm.ca_file", Path("/f.pem"), ""),
    ("TOCSIN", "fcm_connections", "2", "fcm.connections", 2, "0"),
    ("TOCSIN", "fcm_timeout", "3", "fcm.timeout", 3.0, "0"),
    ("TOCSIN", "separate_services", "on", "subscriber.separate_services", True, "x"),
    ("TOCSIN", "smp_lowest_version", "7", "subscriber.lowest_version", 7, "5"),
    ("TOCSIN", "smp_highest_version", "16", "subscriber.highest_version", 16, "99"),
    ("TOCSIN", "smp_connect_timeout", "3", "subscriber.connect_timeout", 3.0, "0"),
    ("TOCSIN", "smp_response_timeout", "3", "subscriber.response_timeout", 3.0, "0"),
    ("TOCSIN", "smp_reconnect_initial", "0.1", "subscriber.reconnect_initial", 0.1, "0"),
    ("TOCSIN", "smp_reconnect_maximum", "3", "subscriber.reconnect_maximum", 3.0, "0"),
    ("TOCSIN", "smp_ping_after", "3", "subscriber.ping_after", 3.0, "0"),
    ("TOCSIN", "smp_batch", "3", "subscriber.batch", 3, "0"),
    ("TOCSIN", "smp_page", "3", "subscriber.page", 3, "0"),
    ("TOCSIN", "smp_concurrent_resubscriptions", "3", "subscriber.concurrent_resubscriptions", 3, "0"),
    ("TOCSIN", "allow_private_hosts", "on", "subscriber.allow_private_hosts", True, "x"),
    ("TOCSIN", "routers_per_token", "3", "subscriber.routers_per_token", 3, "0"),
    ("TOCSIN", "untried_routers_per_token", "3", "subscriber.untried_per_token", 3, "0"),
    ("TOCSIN", "smp_untried_dials", "3", "subscriber.untried_dials", 3, "0"),
    ("TOCSIN", "smp_untried_dials_per_token", "3", "subscriber.untried_dials_per_token", 3, "0"),
    ("TOCSIN", "smp_untried_maximum", "30", "subscriber.untried_maximum", 30.0, "0"),
    ("TOCSIN", "direct_notifications", "off", "direct.enabled", False, "x"),
    ("TOCSIN", "direct_key_lifetime", "864000", "direct.key_lifetime", 864_000.0, "0"),
    ("TOCSIN", "direct_key_rotation", "3600", "direct.key_rotation", 3600.0, "0"),
    ("TOCSIN", "direct_auth_key_rotation", "3600", "direct.auth_key_rotation", 3600.0, "0"),
    ("TOCSIN", "direct_deleted_grace", "0", "direct.deleted_grace", 0.0, "-1"),
    ("TOCSIN", "statistics_file", "/stats", "statistics_file", Path("/stats"), ""),
    ("TOCSIN", "statistics_start", "60", "statistics_start", 60.0, "-1"),
    ("TOCSIN", "statistics_interval", "60", "statistics_interval", 60.0, "0"),
    ("TOCSIN", "prometheus_port", "9100", "prometheus_port", 9100, "http"),
    ("TOCSIN", "prometheus_file", "/metrics", "prometheus_file", Path("/metrics"), ""),
    ("TOCSIN", "prometheus_host", "0.0.0.0", "prometheus_host", "0.0.0.0", "a b"),  # noqa: S104 - only read
    ("TOCSIN", "event_log", "/events", "event_log", Path("/events"), ""),
    ("TOCSIN", "event_log_keys", "/keys", "event_log_keys", Path("/keys"), ""),
    ("TOCSIN", "event_log_retention_days", "7", "event_log_retention_days", 7, "0"),
    ("TOCSIN", "event_log_bytes", "2000000", "event_log_bytes", 2_000_000, "1"),
    ("TOCSIN", "event_log_segment_seconds", "1", "event_log_segment_seconds", 1.0, "0"),
]
KEYS = {(key.section, key.name): key for key in NTF_KEYS}
IDS = [f"{section}.{key}" for section, key, *_ in ROWS]

# Without these the row's key alone would be refused, or would have no effect.
TOGETHER = {
    "disconnect": {"TOCSIN_NTF_INACTIVE_CLIENTS_TTL": "50"},
    "ttl": {"TOCSIN_NTF_INACTIVE_CLIENTS_DISCONNECT": "on"},
    "private_key_file": {"TOCSIN_NTF_CERTIFICATE_FILE": "/c.crt"},
    "direct_notifications": {"TOCSIN_NTF_HOST": "ntf.example"},
    "delivery_engine": {"TOCSIN_NTF_DELIVERY_HANDOVER": "/handover"},
    "webpush": {"TOCSIN_NTF_WEBPUSH_SUBJECT": "https://operator.test"},
    "apns_test_port": {"TOCSIN_NTF_APNS_TEST_HOST": "localhost"},
    "apns_test_ca_file": {"TOCSIN_NTF_APNS_TEST_HOST": "localhost"},
}


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load_text(text: str = "", **environment: str) -> NtfSettings:
        path = tmp_path / "ntf-server.ini"
        path.write_text(text)
        return load_ntf_settings(path, {"HOME": "/", **environment})

    return load_text


def defaults_in(folder: Path) -> NtfSettings:
    """Of a file in this folder."""
    key_file = folder / "webpush-vapid.pem"
    return NtfSettings(credentials=folder, webpush=WebPushSettings(key_file=key_file))


def setting_of(settings: Any, name: str) -> Any:
    for part in name.split("."):
        settings = settings.get(part) if isinstance(settings, dict) else getattr(settings, part, None)
    return settings


def test_every_key_has_a_row_here() -> None:
    assert {(section, key) for section, key, *_ in ROWS} == set(KEYS)
    assert len(KEYS) == len(NTF_KEYS)


def test_every_setting_can_be_set() -> None:
    settable = {key.setting for key in NTF_KEYS} - {None}
    parts: dict[str, Any] = {
        "apns": ApnsSettings,
        "delivery": DeliverySettings,
        "subscriber": SubscriberSettings,
        "direct": NtfDirectSettings,
        "webpush": WebPushSettings,
        "fcm": FcmSettings,
    }
    fields = {each.name for each in dataclass_fields(NtfSettings)} - {"sources", *parts}
    for name, kind in parts.items():
        fields |= {f"{name}.{each.name}" for each in dataclass_fields(kind)} - {"apns.endpoints"}
    fields |= {
        f"apns.endpoints.apns_{e}.{f}" for e in ("prod", "dev", "test") for f in ApnsEndpoint.__slots__
    }
    assert fields == settable


def test_every_key_has_an_environment_variable_of_its_own() -> None:
    assert len({key.variable for key in NTF_KEYS}) == len(NTF_KEYS)


@pytest.mark.parametrize(("section", "key", "text", "setting", "value", "wrong"), ROWS, ids=IDS)
def test_key_decides_its_setting(
    section: str, key: str, text: str, setting: str | None, value: Any, wrong: str | None, load: Load
) -> None:
    others = TOGETHER.get(key, {})
    settings = load(f"[{section}]\n{key}: {text}\n", **others)
    if setting is None:
        assert settings == load(**others)
        return
    assert setting_of(load(), setting) != value, "a row that shows nothing"
    assert setting_of(settings, setting) == value
    assert load(**{KEYS[section, key].variable: text}, **others) == settings


@pytest.mark.parametrize(
    ("section", "key", "wrong"),
    [pytest.param(row[0], row[1], row[5], id=f"{row[0]}.{row[1]}") for row in ROWS if row[5] is not None],
)
def test_wrong_value_is_told_with_place_key_and_what_is_expected(
    section: str, key: str, wrong: str, load: Load
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(f"# a comment\n[{section}]\n{key}: {wrong}\n")
    text = str(caught.value)
    assert f"ntf-server.ini, line 3: [{section}] {key}: " in text
    assert f"{KEYS[section, key].kind.expected} is expected" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[TRANSPROT]\n", "line 1: unknown section [TRANSPROT]; did you mean [TRANSPORT]?"),
        (
            "[SUBSCRIBER]\nsocks_prox: x\n",
            "unknown key `socks_prox` in [SUBSCRIBER]; did you mean `socks_proxy`?",
        ),
        ("[AUTH]\nport: 1\n", "unknown key `port` in [AUTH]; it belongs to [TRANSPORT]"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest_known_one(text: str, says: str, load: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert str(caught.value).endswith(says)


def test_unknown_variable_is_refused_and_others_are_not_looked_at(load: Load) -> None:
    with pytest.raises(ConfigError, match="unknown environment variable TOCSIN_NTF_PROT; did you mean"):
        load(TOCSIN_NTF_PROT="1")
    assert load(TOCSIN_SMP_PORT="1", APNS_KEY_FILES="x") == load()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[TOCSIN]\nlowest_version: 3\nhighest_version: 2\n", "lowest_version 3 is above highest_version 2"),
        (
            "[TOCSIN]\nsmp_lowest_version: 16\nsmp_highest_version: 7\n",
            "smp_lowest_version 16 is above [TOCSIN] smp_highest_version 7",
        ),
        ("[TRANSPORT]\ncontrol_port: 443\n", "must be different ports"),
        ("[AUTH]\ncontrol_port_admin_password: x\ncontrol_port_user_password: x\n", "must differ"),
        ("[INACTIVE_CLIENTS]\ndisconnect: on\n", "ttl is not set"),
        ("[TOCSIN]\nstore: url\n", "db_connection is not set"),
        ("[TOCSIN]\napns_test_port: 6010\n", "apns_test_host is not set"),
        ("[TOCSIN]\nprivate_key_file: x\n", "certificate_file is not"),
        ("[TOCSIN]\nwebpush: on\n", "webpush_subject is not set"),
        ("[TOCSIN]\ndelivery_engine: spark\n", "delivery_handover is not set"),
        ("[TOCSIN]\ndelivery_engine: both\n", "delivery_handover is not set"),
    ],
)
def test_values_that_do_not_go_together_are_refused(text: str, says: str, load: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert says in str(caught.value)


# As `init` of the reference writes it, with what operators uncomment.
REFERENCE = """\
[STORE_LOG]
# The server uses memory or PostgreSQL database for persisting queue records.
enable: on
db_connection: postgresql://ntf@/ntf_server_store
db_schema: ntf_server
db_pool_size: 10
# db_deleted_ttl: 21
log_stats: off
prometheus_interval: 60

[AUTH]
# control_port_admin_password:
control_port_user_password: user pass

[TRANSPORT]
host: ntf2.example
port: 443
log_tls_errors: off
# Use `websockets: 443` to run websockets server in addition to plain TLS.
websockets: off
control_port: 5227

[SUBSCRIBER]
# host_mode: public
required_host_mode: off
own_server_domains: example.im example.chat
socks_proxy: localhost:9050
socks_mode: onion
use_service_credentials: on

[INACTIVE_CLIENTS]
disconnect: on
ttl: 43200
check_interval: 3600
"""


def test_a_file_of_the_reference_is_read_unchanged(load: Load) -> None:
    settings = load(REFERENCE)
    assert settings.store_kind is StoreKind.URL
    assert settings.database_url == "postgresql://ntf@/ntf_server_store"
    assert settings.public_hosts == ("ntf2.example",)
    assert (settings.control_port, settings.control_port_user_password) == (5227, "user pass")
    assert settings.subscriber.own_server_domains == ("example.im", "example.chat")
    assert settings.subscriber.use_service_credentials
    assert (settings.inactive_ttl, settings.inactive_check_interval) == (43_200.0, 3600.0)


def test_the_key_for_web_push_is_in_the_folder_of_the_settings(load: Load, tmp_path: Path) -> None:
    assert load().webpush.key_file == tmp_path / "webpush-vapid.pem"
    (tmp_path / "vapid.privkey").touch()  # of the reference
    assert load().webpush.key_file == tmp_path / "vapid.privkey"
    assert load("[TOCSIN]\nwebpush_key_file: v.pem\n").webpush.key_file == tmp_path / "v.pem"
    (tmp_path / "webpush-vapid.pem").touch()
    assert load().webpush.key_file == tmp_path / "webpush-vapid.pem"
    assert load("[TOCSIN]\nwebpush_ca_file: ca.pem\n").webpush.ca_file == tmp_path / "ca.pem"
    fcm = load("[TOCSIN]\nfcm_key_file: a.json\nfcm_ca_file: ca.pem\n").fcm
    assert (fcm.key_file, fcm.ca_file) == (tmp_path / "a.json", tmp_path / "ca.pem")


def test_inactive_clients_stay_unless_their_disconnection_is_asked_for(load: Load) -> None:
    """The reference's file has both numbers, commented out or not."""
    assert (
        load("[INACTIVE_CLIENTS]\ndisconnect: off\nttl: 43200\ncheck_interval: 3600\n").inactive_ttl is None
    )


def test_a_database_url_alone_chooses_the_database(load: Load) -> None:
    text = f"[STORE_LOG]\ndb_connection: {URL}\n"
    assert load(text).store_kind is StoreKind.URL
    assert load(text + "[TOCSIN]\nstore: memory\n").store_kind is StoreKind.MEMORY
    assert load(text, TOCSIN_NTF_STORE="embedded").store_kind is StoreKind.EMBEDDED
    assert load().store_kind is StoreKind.MEMORY


def test_the_variables_of_the_reference_are_read(load: Load) -> None:
    settings = load(APNS_KEY_FILE="/key.p8", APNS_KEY_ID="K1", NTF_SERVER_LOG_PATH="/data")
    assert (settings.apns.key_file, settings.apns.key_id, settings.store) == (
        Path("/key.p8"),
        "K1",
        Path("/data"),
    )


def test_our_own_variable_is_stronger_than_that_of_the_reference_and_it_than_the_file(load: Load) -> None:
    text = "[TOCSIN]\napns_key_id: FILE\n"
    assert load(text, APNS_KEY_ID="THEIRS").apns.key_id == "THEIRS"
    both = load(text, APNS_KEY_ID="THEIRS", TOCSIN_NTF_APNS_KEY_ID="OURS")
    assert both.apns.key_id == "OURS"
    shown = {each.name: each for each in NTF_FILE.describe(both)}
    assert shown["[TOCSIN] apns_key_id"].source == "environment variable TOCSIN_NTF_APNS_KEY_ID"


def test_an_environment_of_apple_can_be_switched_off(load: Load) -> None:
    settings = load("[TOCSIN]\napns_prod_host: off\napns_dev_host: off\napns_test_host: localhost\n")
    assert set(settings.apns.endpoints) == {"apns_test"}
    assert {each.name: each.value for each in NTF_FILE.describe(settings)}["[TOCSIN] apns_prod_host"] == "off"


def test_paths_count_from_the_folder_of_the_file(load: Load, tmp_path: Path) -> None:
    settings = load(
        "[TOCSIN]\ncredentials: keys\nstore_path: ../var\nevent_log: events\napns_key_file: k.p8\n"
        "apns_prod_ca_file: ca.pem\n"
    )
    assert settings.credentials == tmp_path / "keys"
    assert settings.store == tmp_path / "../var"
    assert settings.event_log == tmp_path / "events"
    assert settings.apns.key_file == tmp_path / "k.p8"
    assert settings.apns.endpoints["apns_prod"].ca_file == tmp_path / "ca.pem"
    assert settings.statistics_file == Path("ntf-server-stats.log")


def test_a_relative_path_of_the_file_serves_too(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load("[TOCSIN]\nstore_path: var\n")
    monkeypatch.chdir(tmp_path.parent)
    settings = load_ntf_settings(Path(tmp_path.name) / "ntf-server.ini", {})
    assert settings.credentials == Path(tmp_path.name)
    assert settings.store == Path(tmp_path.name) / "var"


def test_an_empty_file_gives_the_defaults(load: Load, tmp_path: Path) -> None:
    assert load() == defaults_in(tmp_path)


def test_versions_are_those_of_the_protocol() -> None:
    assert (SUPPORTED.lowest, SUPPORTED.highest) == (LOWEST_VERSION, HIGHEST_VERSION)


def test_no_secret_is_described_or_in_the_repr(load: Load) -> None:
    settings = load(
        f"[STORE_LOG]\ndb_connection: {URL}\n[AUTH]\ncontrol_port_admin_password: hid:den1\n",
        TOCSIN_NTF_CONTROL_PORT_USER_PASSWORD="hid:den2",
    )
    lines = NTF_FILE.describe(settings)
    assert not [each for each in lines if "hid:den" in each.value]
    assert {each.name: each.value for each in lines}["[STORE_LOG] db_connection"] == "(hidden)"
    assert "hid:den" not in repr(settings)


@pytest.mark.parametrize(
    "key", [key for key in NTF_KEYS if key.setting and not key.secret], ids=lambda key: key.name
)
def test_described_value_can_be_set_again(key: NtfSettingKey, load: Load) -> None:
    row = next(row for row in ROWS if (row[0], row[1]) == (key.section, key.name))
    others = TOGETHER.get(key.name, {})
    settings = load(f"[{key.section}]\n{key.name}: {row[2]}\n", **others)
    shown = {each.name: each.value for each in NTF_FILE.describe(settings)}[f"[{key.section}] {key.name}"]
    assert load(f"[{key.section}]\n{key.name}: {shown}\n", **others) == settings


def test_new_file_changes_nothing_but_what_was_chosen(load: Load, tmp_path: Path) -> None:
    assert load(NTF_FILE.new_file({})) == defaults_in(tmp_path)
    settings = load(NTF_FILE.new_file({"host": "a.example", "store": "embedded"}))
    assert settings == replace(
        defaults_in(tmp_path), public_hosts=("a.example",), store_kind=StoreKind.EMBEDDED
    )


def test_defaults_in_a_new_file_are_true(load: Load) -> None:
    """Each line that is commented out says what happens anyway."""
    default = load()
    section, checked = "", 0
    for line in NTF_FILE.new_file({}).splitlines():
        if line.startswith("["):
            section = line
        elif (entry := line.removeprefix("# ").partition(": "))[0].isidentifier() and entry[2]:
            assert load(f"{section}\n{line[2:]}\n") == default, line
            checked += 1
    empty = ("host", "own_server_domains")
    assert checked == len([key for key in NTF_KEYS if key.about and not key.secret and key.name not in empty])


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[TOCSIN]\ndirect_key_lifetime: 60\ndirect_key_rotation: 60\n", "must be shorter"),
    ],
)
def test_keys_of_direct_notifications_overlap(load: Load, text: str, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        load(text)
