"""Files for their owner: whole or not there, and made once."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tocsin.events.private_files import make_private_once


def test_a_file_that_is_made_once_is_its_owners_and_stays_as_the_first_made_it(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    make_private_once(path, b"first")
    make_private_once(path, b"second")
    assert path.read_bytes() == b"first"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_of_two_that_make_it_at_the_same_time_the_first_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sync = tmp_path / "a.key", os.fsync

    def another_is_faster(descriptor: int) -> None:
        sync(descriptor)
        path.write_bytes(b"the other's")

    monkeypatch.setattr(os, "fsync", another_is_faster)
    make_private_once(path, b"ours")
    assert path.read_bytes() == b"the other's"
    assert list(tmp_path.iterdir()) == [path]
