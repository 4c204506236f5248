"""Where the settings file of a router is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.errors import ConfigError
from tocsin.ntf_router.settings.files import NTF_FILE
from tocsin.smp_router.settings.files import SMP_FILE


def test_a_file_that_is_named_is_used_even_if_it_is_missing(tmp_path: Path) -> None:
    assert SMP_FILE.find_file(tmp_path / "other.toml") == tmp_path / "other.toml"


@pytest.mark.parametrize("name", ["smp-server.ini", "smp-server.toml"])
def test_the_file_in_a_folder_is_found(tmp_path: Path, name: str) -> None:
    assert SMP_FILE.find_file(tmp_path) == tmp_path / "smp-server.ini"
    (tmp_path / name).touch()
    assert SMP_FILE.find_file(tmp_path) == tmp_path / name


def test_two_files_in_a_folder_are_refused_with_what_to_do(tmp_path: Path) -> None:
    for name in ("smp-server.ini", "smp-server.toml"):
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=r"has both .*: remove one of them, or choose one with --config"):
        SMP_FILE.find_file(tmp_path)


def test_an_ntf_routers_default_folders_come_from_the_references_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NTF_SERVER_CFG_PATH", raising=False)
    monkeypatch.delenv("NTF_SERVER_LOG_PATH", raising=False)
    assert NTF_FILE.default_folder == Path("/etc/opt/simplex-notifications")
    assert NTF_FILE.default_store == Path("/var/opt/simplex-notifications")
    monkeypatch.setenv("NTF_SERVER_CFG_PATH", str(tmp_path / "etc"))
    monkeypatch.setenv("NTF_SERVER_LOG_PATH", str(tmp_path / "var"))
    assert NTF_FILE.find_file() == tmp_path / "etc" / "ntf-server.ini"
    assert NTF_FILE.default_store == tmp_path / "var"
    assert SMP_FILE.default_folder == Path("/etc/opt/simplex")


@pytest.mark.parametrize("kind", [SMP_FILE, NTF_FILE], ids=["smp", "ntf"])
@pytest.mark.parametrize("toml", [False, True])
def test_a_new_file_names_its_router_and_its_commands(kind: object, toml: bool) -> None:
    assert kind in (SMP_FILE, NTF_FILE)
    router = SMP_FILE if kind is SMP_FILE else NTF_FILE
    heading = router.new_file({}, toml=toml).split("\n\n")[0]
    assert f"Settings of an {router.router.upper()} router." in heading
    assert f"`tocsin {router.router} config show`" in heading
