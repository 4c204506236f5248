"""Spark's Python processes leave out of garbage collection what they have imported, and talk over private sockets."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

import pytest

from tocsin.pipeline.spark import python_workers
from tocsin.pipeline.spark.python_workers import LONGEST_PARENT, freeze_imports, unix_sockets


def test_a_process_freezes_its_imports_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_workers, "_frozen", False)
    before = gc.get_freeze_count()
    try:
        freeze_imports()
        frozen = gc.get_freeze_count()
        assert frozen > before
        later = [[each] for each in range(1000)]
        freeze_imports()
        # Frozen objects may have been dropped meanwhile, so the count may fall. A second freeze would raise it.
        assert gc.get_freeze_count() <= frozen
        assert len(later) == 1000
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("master", ["local[2,4]", "local[*]"])
def test_sockets_lie_in_a_folder_that_only_this_user_may_enter_and_that_goes_with_the_job(
    master: str,
) -> None:
    with unix_sockets(master) as settings:
        folder = Path(settings["spark.python.unix.domain.socket.dir"])
        assert settings["spark.python.unix.domain.socket.enabled"] == "true"
        assert folder.stat().st_mode & 0o077 == 0
        (folder / "left.sock").touch()
    assert not folder.exists()


@pytest.mark.parametrize("master", [None, "spark://host:7077", "yarn"])
def test_processes_of_a_cluster_keep_sockets_with_a_secret(master: str | None) -> None:
    with unix_sockets(master) as settings:
        assert settings == {}


def test_a_folder_whose_path_is_too_long_for_sockets_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * LONGEST_PARENT)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with unix_sockets("local[2]") as settings:
        assert settings == {}
