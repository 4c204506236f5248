"""`smp-server.ini`: every key, every way to get it wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields as dataclass_fields
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from tocsin.errors import ConfigError
from tocsin.protocol.smp.versions import SUPPORTED
from tocsin.smp_router.settings.files import SMP_FILE, load_smp_settings
from tocsin.smp_router.settings.keys import SMP_KEYS, SmpKey
from tocsin.smp_router.settings.settings import (
    DAY,
    HIGHEST_VERSION,
    LOWEST_VERSION,
    SmpDirectSettings,
    SmpNameSettings,
    SmpProxySettings,
    SmpSettings,
)

Load = Callable[..., SmpSettings]
ENDPOINT = "https://names.example/v1"
NTF_ADDRESS = f"ntf://{'A' * 43}=@ntf.example"

# Section, key, text, setting, value, a text that is wrong. None for a setting: accepted, nothing depends on it.
ROWS: list[tuple[str, str, str, str | None, Any, str | None]] = [
    ("STORE_LOG", "enable", "off", "store", None, "yes"),
    ("STORE_LOG", "store_queues", "memory", None, None, "database"),
    ("STORE_LOG", "store_messages", "memory", None, None, "journal"),
    ("STORE_LOG", "restore_messages", "off", "restore_messages", False, "true"),
    ("STORE_LOG", "expire_messages_days", "7", "message_ttl", 7 * DAY, "0"),
    ("STORE_LOG", "expire_messages_on_start", "off", "expire_messages_on_start", False, "1"),
    ("STORE_LOG", "expire_messages_on_send", "on", "expire_messages_on_send", True, "ON"),
    ("STORE_LOG", "expire_ntfs_hours", "12", "notification_ttl", 43_200.0, "-1"),
    ("STORE_LOG", "log_stats", "on", "log_stats", True, ""),
    ("STORE_LOG", "prometheus_interval", "60", "prometheus_interval", 60.0, "0"),
    ("STORE_LOG", "db_connection", "postgresql://smp@/smp_server_store", None, None, None),
    ("STORE_LOG", "db_schema", "smp_server", None, None, None),
    ("STORE_LOG", "db_pool_size", "10", None, None, None),
    ("STORE_LOG", "db_store_log", "on", "database_log", True, "1"),
    ("STORE_LOG", "db_deleted_ttl", "21", None, None, None),
    ("AUTH", "new_queues", "off", "new_queues", False, "no"),
    ("AUTH", "create_password", "corr#ect;!", "create_password", "corr#ect;!", "hid:den"),
    ("AUTH", "control_port_admin_password", "a b", "control_port_admin_password", "a b", ""),
    ("AUTH", "control_port_user_password", "user", "control_port_user_password", "user", ""),
    ("AUTH", "daily_block_queue_quota", "-1", "daily_block_queue_quota", -1, "-2"),
    ("TRANSPORT", "host", "a.example, b.onion", "public_hosts", ("a.example", "b.onion"), "a.example,"),
    ("TRANSPORT", "port", "5223, 443", "ports", (5223, 443), "5223,5223"),
    ("TRANSPORT", "log_tls_errors", "on", "log_tls_errors", True, "maybe"),
    ("TRANSPORT", "websockets", "off", None, None, "443"),
    ("TRANSPORT", "control_port", "5224", "control_port", 5224, "65536"),
    ("TRANSPORT", "accept_service_credentials", "off", "accept_service_credentials", False, "0"),
    ("PROXY", "host_mode", "onion", "proxy.prefer_onion", True, "private"),
    ("PROXY", "required_host_mode", "on", "proxy.required_host_mode", True, "public"),
    ("PROXY", "socks_proxy", "localhost:9050", "proxy.socks_proxy", "localhost:9050", "localhost"),
    ("PROXY", "socks_mode", "always", "proxy.socks_onion_only", False, "never"),
    (
        "PROXY",
        "own_server_domains",
        "a.test .b.test",
        "proxy.own_server_domains",
        ("a.test", ".b.test"),
        "a/b",
    ),
    ("PROXY", "client_concurrency", "2", "proxy.client_concurrency", 2, "0"),
    ("NAMES", "enable", "off", None, None, "yes"),  # on needs a resolver
    ("NAMES", "resolver_endpoint", ENDPOINT, "names.endpoint", ENDPOINT, "ftp://names.example"),
    ("NAMES", "resolver_auth", "basic a:b", "names.auth", "basic a:b", "digest a"),
    ("NAMES", "resolver_timeout_ms", "250", "names.timeout", 0.25, "99"),
    ("NAMES", "resolver_max_response_bytes", "1024", "names.max_response_bytes", 1024, "16001"),
    ("NAMES", "resolver_concurrency", "2", "names.concurrency", 2, "0"),
    ("INACTIVE_CLIENTS", "disconnect", "off", "inactive_ttl", None, "never"),
    ("INACTIVE_CLIENTS", "ttl", "60", "inactive_ttl", 60.0, "1e3"),
    ("INACTIVE_CLIENTS", "check_interval", "1.5", "inactive_check_interval", 1.5, "nan"),
    ("WEB", "static_path", "/var/opt/simplex/www", None, None, None),
    ("WEB", "http", "off", None, None, "8000"),
    ("WEB", "https", "off", None, None, "443"),
    ("WEB", "cert", "/etc/opt/simplex/web.crt", None, None, None),
    ("WEB", "key", "/etc/opt/simplex/web.key", None, None, None),
    *(
        ("INFORMATION", key.name, "anything: at all", None, None, None)
        for key in SMP_KEYS
        if key.section == "INFORMATION"
    ),
    ("TOCSIN", "listen", "127.0.0.1,::1", "hosts", ("127.0.0.1", "::1"), ""),
    ("TOCSIN", "credentials", "/somewhere", "credentials", Path("/somewhere"), ""),
    ("TOCSIN", "store_path", "/elsewhere", "store", Path("/elsewhere"), ""),
    ("TOCSIN", "lowest_version", "7", "lowest_version", 7, "5"),
    ("TOCSIN", "highest_version", "7", "highest_version", 7, "21"),
    ("TOCSIN", "accept_without_alpn", "off", "accept_without_alpn", False, "none"),
    ("TOCSIN", "max_queues", "5", "max_queues", 5, "0"),
    ("TOCSIN", "message_quota", "4", "message_quota", 4, "four"),
    ("TOCSIN", "message_ttl", "1", "message_ttl", 1.0, "-1"),
    ("TOCSIN", "message_expiry_interval", "10000", "message_expiry_interval", 10_000.0, "0"),
    ("TOCSIN", "notification_quota", "5", "notification_quota", 5, "0"),
    ("TOCSIN", "notification_ttl", "2.5", "notification_ttl", 2.5, "off"),
    ("TOCSIN", "notification_expiry_interval", "1", "notification_expiry_interval", 1.0, "0"),
    ("TOCSIN", "notification_interval", "0", "notification_interval", 0.0, "off"),
    ("TOCSIN", "notification_confirm_after", "0", "notification_confirm_after", 0.0, "off"),
    ("TOCSIN", "event_log", "/events", "event_log", Path("/events"), ""),
    ("TOCSIN", "event_log_keys", "/keys", "event_log_keys", Path("/keys"), ""),
    ("TOCSIN", "event_log_retention_days", "7", "event_log_retention_days", 7, "0"),
    ("TOCSIN", "event_log_bytes", "2000000", "event_log_bytes", 2_000_000, "1"),
    ("TOCSIN", "event_log_segment_seconds", "1", "event_log_segment_seconds", 1.0, "0"),
    ("TOCSIN", "end_interval", "0.5", "end_interval", 0.5, ".5"),
    ("TOCSIN", "tls_handshake_seconds", "5", "tls_handshake_seconds", 5.0, "0"),
    ("TOCSIN", "hello_seconds", "60", "hello_seconds", 60.0, "inf"),
    ("TOCSIN", "write_queue_blocks", "4", "write_queue_blocks", 4, "0"),
    ("TOCSIN", "write_stall_seconds", "30", "write_stall_seconds", 30.0, "0"),
    ("TOCSIN", "max_waiting_bytes", "5000000", "max_waiting_bytes", 5_000_000, "1"),
    ("TOCSIN", "max_connections", "10", "max_connections", 10, "10.5"),
    ("TOCSIN", "drain_seconds", "0", "drain_seconds", 0.0, "- 1"),
    ("TOCSIN", "proxy", "off", "proxy.enabled", False, "disabled"),
    ("TOCSIN", "proxy_connect_timeout", "3", "proxy.connect_timeout", 3.0, "0"),
    ("TOCSIN", "proxy_response_timeout", "4", "proxy.response_timeout", 4.0, "0"),
    ("TOCSIN", "proxy_remember_failure", "1", "proxy.remember_failure", 1.0, "x"),
    ("TOCSIN", "proxy_public_relays_only", "off", "proxy.public_relays_only", False, "yes"),
    ("TOCSIN", "proxy_client_connects", "2", "proxy.client_connects", 2, "0"),
    ("TOCSIN", "proxy_max_relays", "10", "proxy.max_relays", 10, "0"),
    ("TOCSIN", "proxy_relay_idle", "60", "proxy.relay_idle", 60.0, "0"),
    ("TOCSIN", "direct_notifications", "off", "direct.enabled", False, "yes"),
    ("TOCSIN", "direct_connect_timeout", "3", "direct.connect_timeout", 3.0, "0"),
    ("TOCSIN", "direct_response_timeout", "4", "direct.response_timeout", 4.0, "0"),
    ("TOCSIN", "direct_answer_wait", "0", "direct.answer_wait", 0.0, "-1"),
    ("TOCSIN", "direct_retry_initial", "1", "direct.retry_initial", 1.0, "0"),
    ("TOCSIN", "direct_retry_maximum", "60", "direct.retry_maximum", 60.0, "never"),
    ("TOCSIN", "direct_keep_packets", "86400", "direct.keep_packets", DAY, "0"),
    ("TOCSIN", "direct_max_packets", "5", "direct.max_packets", 5, "0"),
    ("TOCSIN", "direct_max_packets_per_router", "5", "direct.max_packets_per_router", 5, "0"),
    ("TOCSIN", "direct_max_ntf_routers", "2", "direct.max_ntf_routers", 2, "0"),
    ("TOCSIN", "direct_idle", "10", "direct.idle", 10.0, "0"),
    ("TOCSIN", "direct_public_ntf_routers_only", "off", "direct.public_ntf_routers_only", False, "no"),
    (
        "TOCSIN",
        "direct_ntf_routers",
        f"{NTF_ADDRESS},b.onion:443  {NTF_ADDRESS}",
        "direct.ntf_routers",
        (f"{NTF_ADDRESS},b.onion:443", NTF_ADDRESS),
        NTF_ADDRESS.replace("ntf", "smp"),
    ),
    ("TOCSIN", "database_url", "postgresql://smp@/smp", "database_url", "postgresql://smp@/smp", None),
    ("TOCSIN", "statistics_file", "/stats", "statistics_file", Path("/stats"), ""),
    ("TOCSIN", "prometheus_port", "9100", "prometheus_port", 9100, "http"),
    ("TOCSIN", "prometheus_file", "/metrics", "prometheus_file", Path("/metrics"), ""),
    ("TOCSIN", "prometheus_host", "0.0.0.0", "prometheus_host", "0.0.0.0", "a b"),  # noqa: S104 - only read
]
KEYS = {(key.section, key.name): key for key in SMP_KEYS}
IDS = [f"{section}.{key}" for section, key, *_ in ROWS]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load_text(text: str = "", **environment: str) -> SmpSettings:
        path = tmp_path / "smp-server.ini"
        path.write_text(text)
        return load_smp_settings(path, {"HOME": "/", **environment})

    return load_text


def setting_of(settings: SmpSettings, name: str) -> Any:
    return attrgetter(name)(settings)


def test_every_key_has_a_row_here() -> None:
    assert {(section, key) for section, key, *_ in ROWS} == set(KEYS)
    assert len(KEYS) == len(SMP_KEYS)


def test_every_setting_can_be_set() -> None:
    settable = {key.setting for key in SMP_KEYS}
    fields = {each.name for each in dataclass_fields(SmpSettings)} - {"proxy", "direct", "names", "sources"}
    fields |= {f"names.{name}" for name in SmpNameSettings.__slots__}
    fields |= {f"proxy.{name}" for name in SmpProxySettings.__slots__}
    assert fields | {f"direct.{name}" for name in SmpDirectSettings.__slots__} == settable - {None}


def test_every_key_has_an_environment_variable_of_its_own() -> None:
    assert len({key.variable for key in SMP_KEYS}) == len(SMP_KEYS)


@pytest.mark.parametrize(("section", "key", "text", "setting", "value", "wrong"), ROWS, ids=IDS)
def test_key_decides_its_setting(
    section: str, key: str, text: str, setting: str | None, value: Any, wrong: str | None, load: Load
) -> None:
    default = load()
    settings = load(f"[{section}]\n{key}: {text}\n")
    if setting is None:
        assert settings == default
        return
    assert setting_of(default, setting) != value, "a row that shows nothing"
    assert setting_of(settings, setting) == value
    assert load(f"[{section}]\n{key} = {text}\n") == settings
    assert load(**{KEYS[section, key].variable: text}) == settings


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
    assert f"smp-server.ini, line 3: [{section}] {key}: " in text
    assert f"{KEYS[section, key].kind.expected} is expected" in text
    assert "\n" not in text
    assert "hid:den" not in text
    variable = KEYS[section, key].variable
    with pytest.raises(ConfigError, match=f"environment variable {variable}: .* is expected"):
        load(**{variable: wrong})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[TRANSPORT]\nwebsockets: 443\n", "Tocsin has no WebSockets: only `off` is expected, not '443'"),
        ("[WEB]\nhttps: 443\n", "Tocsin serves no web pages: only `off` is expected"),
        ("[STORE_LOG]\nstore_queues: database\n", "only `memory` is expected, not 'database'"),
    ],
)
def test_what_tocsin_cannot_do_is_said_in_words(text: str, says: str, load: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[TRANSPROT]\n", "line 1: unknown section [TRANSPROT]; did you mean [TRANSPORT]?"),
        ("[transport]\n", "line 1: unknown section [transport]; did you mean [TRANSPORT]?"),
        ("[QQ]\n", "line 1: unknown section [QQ]; remove it, or correct its name"),
        (
            "[AUTH]\n\nnew_queus: on\n",
            "line 3: unknown key `new_queus` in [AUTH]; did you mean `new_queues`?",
        ),
        ("[AUTH]\nport: 1\n", "line 2: unknown key `port` in [AUTH]; it belongs to [TRANSPORT]"),
        ("[AUTH]\nzzz: 1\n", "line 2: unknown key `zzz` in [AUTH]; remove it, or correct its name"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest_known_one(text: str, says: str, load: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert str(caught.value).endswith(says)


def test_unknown_variable_is_refused_and_others_are_not_looked_at(load: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        load(TOCSIN_SMP_PROT="1")
    assert str(caught.value) == "unknown environment variable TOCSIN_SMP_PROT; did you mean TOCSIN_SMP_PORT?"
    assert load(TOCSIN_NTF_PROT="1") == load()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[TOCSIN]\nlowest_version: 9\nhighest_version: 8\n", "lowest_version 9 is above highest_version 8"),
        ("[TRANSPORT]\ncontrol_port: 5223\n", "must be different ports"),
        ("[TOCSIN]\nprometheus_port: 5223\n", "must be different ports"),
        ("[AUTH]\ncontrol_port_admin_password: x\ncontrol_port_user_password: x\n", "must differ"),
        ("[STORE_LOG]\nenable: off\nlog_stats: on\n", "log_stats writes files"),
        ("[TOCSIN]\ndirect_retry_maximum: 1\n", "direct_retry_initial is above direct_retry_maximum"),
        ("[NAMES]\nenable: on\n", "resolver_endpoint is missing"),
        (
            "[NAMES]\nresolver_endpoint: http://names.example\nresolver_auth: bearer x\n",
            "resolver_auth would go unencrypted to another machine",
        ),
        ("[STORE_LOG]\nexpire_messages_days: 1\n[TOCSIN]\nmessage_ttl: 1\n", "remove one of them"),
    ],
)
def test_values_that_do_not_go_together_are_refused(text: str, says: str, load: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert says in str(caught.value)


def test_several_ports_may_be_left_to_the_system(load: Load) -> None:
    settings = load("[TRANSPORT]\nport: 0\ncontrol_port: 0\n[TOCSIN]\nprometheus_port: 0\n")
    assert (settings.ports, settings.control_port, settings.prometheus_port) == ((0,), 0, 0)


def test_names_are_resolved_where_a_resolver_is_named(load: Load) -> None:
    assert load(f"[NAMES]\nenable: on\nresolver_endpoint: {ENDPOINT}\n").names.enabled
    assert not load(f"[NAMES]\nresolver_endpoint: {ENDPOINT}\n").names.enabled


def test_environment_wins_over_the_file_also_with_another_key(load: Load) -> None:
    text = "[STORE_LOG]\nexpire_messages_days: 21\n"
    assert load(text, TOCSIN_SMP_MESSAGE_TTL="off").message_ttl is None
    assert load(text, TOCSIN_SMP_EXPIRE_MESSAGES_DAYS="1").message_ttl == DAY


def test_a_switch_wins_over_the_value_it_switches(load: Load) -> None:
    text = (
        "[INACTIVE_CLIENTS]\ndisconnect: off\nttl: 60\n[STORE_LOG]\nenable: off\n[TOCSIN]\nstore_path: /x\n"
    )
    settings = load(text)
    assert settings.inactive_ttl is None
    assert settings.store is None
    on = load(text, TOCSIN_SMP_INACTIVE_CLIENTS_DISCONNECT="on", TOCSIN_SMP_STORE_LOG_ENABLE="on")
    assert on.inactive_ttl == 60.0
    assert on.store == Path("/x")


def test_paths_count_from_the_folder_of_the_file(load: Load, tmp_path: Path) -> None:
    settings = load("[TOCSIN]\ncredentials: keys\nstore_path: ../var\n")
    assert settings.credentials == tmp_path / "keys"
    assert settings.store == tmp_path / "../var"
    assert load().credentials == tmp_path


def test_a_relative_path_of_the_file_serves_too(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load("[TOCSIN]\nstore_path: var\n")
    monkeypatch.chdir(tmp_path.parent)
    settings = load_smp_settings(Path(tmp_path.name) / "smp-server.ini", {})
    assert settings.credentials == Path(tmp_path.name)
    assert settings.store == Path(tmp_path.name) / "var"


def test_an_empty_file_gives_the_defaults(load: Load, tmp_path: Path) -> None:
    assert load() == SmpSettings(credentials=tmp_path)


def test_versions_are_those_of_the_protocol() -> None:
    assert (SUPPORTED.lowest, SUPPORTED.highest) == (LOWEST_VERSION, HIGHEST_VERSION)


def test_description_has_every_setting_once_with_its_source_and_no_secret(load: Load) -> None:
    settings = load(
        "[AUTH]\ncreate_password: hidden1\ncontrol_port_admin_password: hidden2\n[STORE_LOG]\nenable: off\n",
        TOCSIN_SMP_CONTROL_PORT_USER_PASSWORD="hidden3",
        TOCSIN_SMP_MESSAGE_TTL="1.5",
    )
    lines = {each.name: each for each in SMP_FILE.describe(settings)}
    assert len({(key.setting, key.switch) for key in SMP_KEYS if key.setting}) == len(lines)
    assert not [each for each in lines.values() if "hidden1" in each.value or "hidden2" in each.value]
    assert lines["[AUTH] create_password"].value == "(hidden)"
    assert lines["[AUTH] create_password"].source.endswith("smp-server.ini, line 2")
    assert lines["[STORE_LOG] enable"].value == "off"
    assert lines["[TOCSIN] message_ttl"].value == "1.5"
    assert lines["[TOCSIN] message_ttl"].source == "environment variable TOCSIN_SMP_MESSAGE_TTL"
    assert lines["[TRANSPORT] port"].source == "default"
    assert "hidden" not in repr(settings)


@pytest.mark.parametrize(
    "key", [key for key in SMP_KEYS if key.setting and not key.secret], ids=lambda key: key.name
)
def test_described_value_can_be_set_again(key: SmpKey, load: Load) -> None:
    row = next(row for row in ROWS if (row[0], row[1]) == (key.section, key.name))
    settings = load(f"[{key.section}]\n{key.name}: {row[2]}\n")
    shown = {each.name: each.value for each in SMP_FILE.describe(settings)}[f"[{key.section}] {key.name}"]
    assert load(f"[{key.section}]\n{key.name}: {shown}\n") == settings


def test_new_file_changes_nothing_but_what_was_chosen(load: Load, tmp_path: Path) -> None:
    assert load(SMP_FILE.new_file({})) == SmpSettings(credentials=tmp_path)
    settings = load(SMP_FILE.new_file({"host": "a.example", "create_password": "x"}))
    assert settings == SmpSettings(credentials=tmp_path, public_hosts=("a.example",), create_password="x")


def test_defaults_in_a_new_file_are_true(load: Load) -> None:
    """Each line that is commented out says what happens anyway."""
    default = load()
    shown = SMP_FILE.new_file({}).splitlines()
    section, checked = "", 0
    for line in shown:
        if line.startswith("["):
            section = line
        elif (entry := line.removeprefix("# ").partition(": "))[0].isidentifier() and entry[2]:
            assert load(f"{section}\n{line[2:]}\n") == default, line
            checked += 1
    empty = ("host", "own_server_domains", "direct_ntf_routers")
    named = [key for key in SMP_KEYS if key.about and not key.secret and key.name not in empty]
    assert checked == len(named)
