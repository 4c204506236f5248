"""`tocsin pipeline init` finds the routers that `smp init` and `ntf init` created, and their event logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.cli.main import run
from tocsin.pipeline.service.settings import load_settings


def test_settings_find_the_routers_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("smp", "ntf"):
        folder, store = str(tmp_path / kind), str(tmp_path / f"{kind}-store")
        assert run([kind, "init", "--host", "localhost", "--folder", folder, "--store", store]) == 0
        said = capsys.readouterr().out
        assert f"Delivery events go to {tmp_path / f'{kind}-store' / 'events'}, at most 1 GiB" in said
    folders = ["--folder", str(tmp_path / "smp"), "--folder", str(tmp_path / "ntf")]
    given = [
        "pipeline",
        "init",
        *folders,
        "--lake",
        str(tmp_path / "lake"),
        "--config",
        str(tmp_path / "p.toml"),
    ]
    assert run(given) == 0
    said = capsys.readouterr().out
    assert "2 event logs" in said
    assert "set event_log_keys of all of them to one folder" in said
    settings, _ = load_settings(tmp_path / "p.toml", tables={}, kinds=())
    assert settings.events == (str(tmp_path / "smp-store/events"), str(tmp_path / "ntf-store/events"))
    assert settings.lake == str(tmp_path / "lake")
    assert run(given) == 1
    assert "exists: edit it" in capsys.readouterr().err


def test_a_group_of_no_devices_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for number in ("0", "few"):
        with pytest.raises(SystemExit):
            run(["pipeline", "build", "--smallest-group", number])
        assert "expected a whole number of devices, 1 or more" in capsys.readouterr().err


def test_a_router_without_an_event_log_is_told_how_to_get_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "smp")
    run(["smp", "init", "--host", "localhost", "--folder", folder, "--store", folder, "--no-event-log"])
    assert "No delivery event log" in capsys.readouterr().out
    assert run(["pipeline", "init", "--folder", folder, "--config", str(tmp_path / "p.toml")]) == 1
    assert "set event_log in its settings" in capsys.readouterr().err
