"""Files of lines on a disk that fails."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.doubles.failing_disk import FailingDisk
from tocsin.durable.log_files import AppendOnlyFile, read_lines, replace_lines
from tocsin.errors import StoreError, StoreUnavailable


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FailingDisk:
    return FailingDisk(tmp_path, monkeypatch)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", [1, 2])
def test_an_append_that_failed_can_be_repeated(
    tmp_path: Path, disk: FailingDisk, call: int, error: int
) -> None:
    file = AppendOnlyFile(tmp_path / "log")
    file.append(b"one\n")
    for calls in (1, 2, 3):
        disk.fail(call, calls, error)
        for _ in range(calls):
            with pytest.raises(StoreUnavailable, match="log"):
                file.append(b"two\nthree\n")
    disk.heal()
    file.append(b"two\nthree\n")
    file.close()
    assert [*read_lines(tmp_path / "log")] == [b"one", b"two", b"three"]
    assert file.size == (tmp_path / "log").stat().st_size


def test_a_log_that_lost_durable_lines_is_not_written_again(tmp_path: Path, disk: FailingDisk) -> None:
    file = AppendOnlyFile(tmp_path / "log")
    file.append(b"one\n")
    disk.fail(1)
    with pytest.raises(StoreUnavailable):
        file.append(b"two\n")
    (tmp_path / "log").write_bytes(b"")
    with pytest.raises(StoreError, match="lost lines") as raised:
        file.append(b"two\n")
    assert not isinstance(raised.value, StoreUnavailable)
    file.close()


def test_a_replacement_that_fails_leaves_the_old_lines_and_no_draft(
    tmp_path: Path, disk: FailingDisk
) -> None:
    path = tmp_path / "log"
    replace_lines(path, [b"old"])
    before = disk.calls
    replace_lines(path, [b"old"])
    steps = disk.calls - before
    for step in range(1, steps + 1):
        disk.fail(step)
        with pytest.raises(StoreUnavailable):
            replace_lines(path, [b"new" * 1000])
        disk.heal()
        assert [*read_lines(path)] in ([b"old"], [b"new" * 1000])
        assert [each.name for each in tmp_path.iterdir()] == ["log"]
    assert steps >= 5
