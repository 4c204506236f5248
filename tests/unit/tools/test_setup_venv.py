"""What the set-up says when it cannot go on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools import setup_venv


def test_a_disk_without_room_is_named_before_anything_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = shutil._ntuple_diskusage(10**12, 10**12, 300 * 1024**2)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    for name in setup_venv.STAMP_INPUTS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(SystemExit):
        setup_venv.set_up(tmp_path)
    assert "300 MB are free where .venv goes, and its packages need 2048 MB" in capsys.readouterr().err
    assert not (tmp_path / ".venv").exists()
    assert (tmp_path / ".venv.setup").read_text() == ""
