"""The settings files of both routers in TOML: the same keys as in INI, with types of TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ntf_router.settings import test_files as test_ntf_ini
from tests.unit.smp_router.settings import test_files as test_smp_ini
from tocsin.errors import ConfigError
from tocsin.ntf_router.settings.files import NTF_FILE
from tocsin.ntf_router.settings.keys import NTF_KEYS
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind
from tocsin.operate.settings.problems import SeveralProblems, problems_of
from tocsin.operate.settings.router_settings import RouterSettings
from tocsin.operate.settings.setting_keys import SettingKey
from tocsin.operate.settings.setting_values import TomlForm
from tocsin.operate.settings.toml_files import literal_of
from tocsin.smp_router.settings.files import SMP_FILE, load_smp_settings
from tocsin.smp_router.settings.keys import SMP_KEYS
from tocsin.smp_router.settings.settings import SmpSettings


@dataclass(frozen=True)
class Kind:
    name: str
    keys: Sequence[SettingKey]
    rows: Sequence[tuple[Any, ...]]
    files: RouterSettings[Any]
    together: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def load(self, folder: Path, text: str, environment: Mapping[str, str] | None = None, *set_: str) -> Any:
        path = folder / self.files.toml_file
        path.write_text(text)
        return self.files.load(path, environment or {}, set_)

    def load_ini(self, folder: Path, text: str, environment: Mapping[str, str]) -> Any:
        path = folder / self.files.ini_file
        path.write_text(text)
        return self.files.load(path, environment)


SMP = Kind("smp", SMP_KEYS, test_smp_ini.ROWS, SMP_FILE)
NTF = Kind("ntf", NTF_KEYS, test_ntf_ini.ROWS, NTF_FILE, test_ntf_ini.TOGETHER)
BOTH = pytest.mark.parametrize("kind", [SMP, NTF], ids=["smp", "ntf"])
ROWS = [
    pytest.param(kind, key, row, id=f"{kind.name}.{key.toml_name}")
    for kind in (SMP, NTF)
    for key, row in (
        (next(key for key in kind.keys if (key.section, key.name) == row[:2]), row) for row in kind.rows
    )
]


def statement(path: Sequence[str], literal: str) -> str:
    *tables, name = path
    return (f"[{'.'.join(tables)}]\n" if tables else "") + f"{name} = {literal}\n"


@BOTH
def test_every_key_has_a_name_of_its_own(kind: Kind) -> None:
    paths = [key.toml_path for key in kind.keys]
    assert len(set(paths)) == len(paths)
    tables = {path[:end] for path in paths for end in range(1, len(path))}
    assert not tables & set(paths), "a key that is a table too"


def test_groups_are_tables() -> None:
    names = {key.toml_name for key in (*SMP_KEYS, *NTF_KEYS)}
    assert {
        "transport.port",
        "direct.enabled",
        "proxy.enabled",
        "proxy.socks_mode",
        "apns.key_file",
        "apns.endpoints.apns_prod.host",
        "subscriber.batch",
        "message_quota",
    } <= names


@pytest.mark.parametrize(("kind", "key", "row"), ROWS)
def test_key_says_in_toml_what_it_says_in_ini(
    kind: Kind, key: SettingKey, row: tuple[Any, ...], tmp_path: Path
) -> None:
    others = kind.together.get(key.name, {})
    expected = kind.load_ini(tmp_path, f"[{key.section}]\n{key.name}: {row[2]}\n", others)
    literal = literal_of(key.kind, row[2])
    settings = kind.load(tmp_path, statement(key.toml_path, literal), others)
    assert settings == expected
    place = settings.sources[key.variable]
    assert place.endswith(f"{kind.files.toml_file}, line {(len(key.toml_path) > 1 and 2) or 1}")
    assert kind.load(tmp_path, "", others, f"{key.toml_name}={row[2]}") == expected, "on the command line"


@pytest.mark.parametrize(("kind", "key", "row"), ROWS)
def test_a_value_of_another_type_is_told_with_line_key_and_what_is_expected(
    kind: Kind, key: SettingKey, row: tuple[Any, ...], tmp_path: Path
) -> None:
    wrong = '"5"' if key.kind.form is TomlForm.NUMBER else "5" if key.kind.form is TomlForm.TEXT else '"on"'
    for literal in (wrong, "2026-11-15", "{ a = 1 }"):
        with pytest.raises(ConfigError) as caught:
            kind.load(tmp_path, "# a comment\n" + statement(key.toml_path, literal))
        text = str(caught.value)
        assert f"{kind.files.toml_file}, line {2 if len(key.toml_path) == 1 else 3}: " in text
        assert key.toml_name in text
        if literal != "{ a = 1 }":
            assert f"{key.kind.toml_expected} is expected" in text


@BOTH
def test_new_file_changes_nothing_but_what_was_chosen(kind: Kind, tmp_path: Path) -> None:
    text = kind.files.new_file({}, toml=True)
    assert tomllib.loads(text).keys() == {
        path[0] for key in kind.keys if key.about for path in [key.toml_path][:1] if len(path) > 1
    }
    assert kind.load(tmp_path, text) == kind.load(tmp_path, "")
    chosen = {"host": "a.example,b.onion", "port": "1,2", "enable": "off", "websockets": "off"}
    settings = kind.load(tmp_path, kind.files.new_file(chosen, toml=True))
    assert settings.public_hosts == ("a.example", "b.onion")
    assert settings.ports == (1, 2)


@BOTH
def test_defaults_in_a_new_file_are_true(kind: Kind, tmp_path: Path) -> None:
    """Each line that is commented out says what happens anyway."""
    default = kind.load(tmp_path, "")
    table, checked = "", set()
    together = {"ttl": {"TOCSIN_NTF_INACTIVE_CLIENTS_DISCONNECT": "off"}}
    for line in kind.files.new_file({}, toml=True).splitlines():
        name, equals, value = line.removeprefix("# ").partition(" = ")
        if line.startswith("["):
            table = line[1:-1]
        elif equals and name.isidentifier() and value != '""':
            others = together.get(name, {}) if kind is NTF else {}
            if name in ("port", "ca_file") and table.endswith("apns_test"):
                continue  # the host is not set
            assert kind.load(tmp_path, f"[{table}]\n{line[2:]}\n" if table else line[2:], others) == default
            checked.add(f"{table}.{name}".removeprefix("."))
    left_out = {"apns.endpoints.apns_test.port", "apns.endpoints.apns_test.ca_file"} if kind is NTF else set()
    assert checked == {key.toml_name for key in kind.keys if key.about and not key.secret} - left_out


@BOTH
def test_lists_may_be_one_value_and_off_is_false(kind: Kind, tmp_path: Path) -> None:
    settings = kind.load(
        tmp_path, 'prometheus_port = false\nlisten = "::1"\n[transport]\nport = 7\nhost = "a"\n'
    )
    assert (settings.ports, settings.public_hosts, settings.hosts) == ((7,), ("a",), ("::1",))
    assert settings.prometheus_port is None


def test_inline_tables_and_dotted_keys_serve_too(tmp_path: Path) -> None:
    text = 'apns = { topic = "an.app", endpoints = { apns_prod.host = "a.test" } }\ntransport.port = 1\n'
    settings = NTF.load(tmp_path, text)
    assert isinstance(settings, NtfSettings)
    assert settings.apns.topic == "an.app"
    assert settings.apns.endpoints["apns_prod"].host == "a.test"
    assert settings.ports == (1,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[transprot]\nport = 1\n", "line 1: unknown table [transprot]; did you mean [transport]?"),
        ("[TRANSPORT]\n", "line 1: unknown table [TRANSPORT]; did you mean [transport]?"),
        ("[proxy]\nsocks_prox = 1\n", "line 2: unknown key `proxy.socks_prox`; did you mean `proxy.socks_proxy`?"),
        ("direct_notifications = true\n", "unknown key `direct_notifications`; it is `direct.enabled`"),
        ("[auth]\nport = 1\n", "unknown key `auth.port`; it is `transport.port`"),
        ("proxy = true\n", "proxy: expected a table, [proxy]"),
        (
            "[proxy]\nenabled = true\n[direct]\nzzzz = 1\n",
            "line 4: unknown key `direct.zzzz`; remove it, or correct its name",
        ),
        ("[transport]\nport = [1, 1]\n", "a port, or an array of different ones, is expected, not such an array"),
        ("[transport]\nport = 1.5\n", "is expected, not the number 1.5"),
        ("message_quota = true\n", "is expected, not true"),
        ("listen = []\n", "is expected, not such an array"),
        ('listen = ["a,b"]\n', "is expected, not such an array"),
        ("lowest_version = 9\nhighest_version = 8\n", "lowest_version 9 is above highest_version 8"),
        (
            "[direct]\nretry_maximum = 1\n",
            "direct.retry_initial is above direct_retry_maximum: lower it, or raise the maximum",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_the_names_of_toml(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        SMP.load(tmp_path, text)
    assert str(caught.value).endswith(says)


def test_a_wrong_secret_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        SMP.load(tmp_path, '[auth]\ncreate_password = "hid:den"\n')
    assert "hid:den" not in str(caught.value)


@pytest.mark.parametrize("suffix", ["ini", "toml"])
def test_all_that_is_wrong_is_told_at_once(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{suffix}"
    path.write_text(
        "message_quotas = 1\n[transport]\nport = true\n[nowhere]\nx = 1\n"
        if suffix == "toml"
        else "[TOCSIN]\nmessage_quotas: 1\n[TRANSPORT]\nport: true\n[NOWHERE]\nx: 1\n"
    )
    with pytest.raises(SeveralProblems) as caught:
        load_smp_settings(path, {"TOCSIN_SMP_PROXI": "on"}, ["ports=1"])
    assert len(problems_of(caught.value)) == 5
    assert str(caught.value).endswith("(and 4 more: `config check` lists all)")
    assert "\n" not in str(caught.value)


def test_the_command_line_wins_over_the_environment_and_it_over_the_file(tmp_path: Path) -> None:
    text, environment = "message_quota = 1\n", {"TOCSIN_SMP_MESSAGE_QUOTA": "2"}
    assert SMP.load(tmp_path, "").message_quota == 128
    assert SMP.load(tmp_path, text).message_quota == 1
    assert SMP.load(tmp_path, text, environment).message_quota == 2
    settings = SMP.load(
        tmp_path, text, environment, "message_quota=3", "store_log_enable=off", "message_quota=4"
    )
    assert isinstance(settings, SmpSettings)
    assert (settings.message_quota, settings.store) == (4, None)
    shown = {each.key.toml_name: each.source for each in SMP_FILE.describe(settings)}
    assert shown["message_quota"] == "command line, --set message_quota"
    assert shown["store_log.enable"] == "command line, --set store_log_enable"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("message_quot=1", "--set: unknown key `message_quot`; did you mean `message_quota`?"),
        ("message_quota", "--set: unknown key `message_quota`: write NAME=VALUE"),
        ("message_quota=x", "command line, --set message_quota: [TOCSIN] message_quota: a whole number"),
    ],
)
def test_a_wrong_setting_on_the_command_line_is_told(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        SMP.load(tmp_path, "", {}, text)
    assert says in str(caught.value)


def test_a_database_url_alone_chooses_the_database(tmp_path: Path) -> None:
    text = '[store_log]\ndb_connection = "postgresql://ntf@/ntf"\n'
    assert NTF.load(tmp_path, text).store_kind is StoreKind.URL
    assert NTF.load(tmp_path, 'store = "memory"\n' + text).store_kind is StoreKind.MEMORY
