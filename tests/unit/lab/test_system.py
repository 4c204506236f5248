"""What `tocsin up` needs before it starts anything."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tocsin.errors import ConfigError
from tocsin.lab import system as up_system


def test_a_disk_without_room_is_named_with_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil._ntuple_diskusage(10**12, 10**12, 3 * 1024**2)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(
        ConfigError, match=r"has 3 MB of free space, but 500 MB are needed.*choose another --folder"
    ):
        up_system.make_folder(tmp_path / "up")


def test_a_folder_that_cannot_be_written_is_named() -> None:
    """Not even by root."""
    with pytest.raises(
        ConfigError, match=r"/proc/self/.* (cannot be created|is not writable).*choose another --folder"
    ):
        up_system.make_folder(Path("/proc/self/up"))


def test_a_folder_with_room_is_made(tmp_path: Path) -> None:
    up_system.make_folder(tmp_path / "up")
    assert [path.name for path in (tmp_path / "up").iterdir()] == [up_system.PHONES]
