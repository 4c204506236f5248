"""The streaming source over hand-over folders: offsets, batches and deletion of segments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tocsin.pipeline.delivery.handover_source import HandoverReader


def segment(folder: Path, number: int, size: int = 10) -> str:
    folder.mkdir(exist_ok=True)
    name = f"pending-{number:020d}-1-1.jsonl"
    (folder / name).write_bytes(b"x" * size)
    return name


def test_a_batch_has_the_same_segments_when_it_is_planned_again(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    names = [segment(folder, number) for number in (1, 2) for folder in folders]
    reader = HandoverReader(folders, 1)
    limit: Any = None
    end = reader.latestOffset({}, limit)
    assert set(end.values()) == set(names[2:])
    planned = reader.partitions({}, end)
    for folder in folders:
        segment(folder, 3)
    assert reader.partitions({}, end) == planned
    [partition] = planned
    assert list(reader.read(partition)) == [
        (number, name, 0, 1) for number, folder in enumerate(folders) for name in sorted(names[:3:2])
    ]
    assert reader.partitions(end, end) == []


def test_a_backlog_is_worked_off_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.pipeline.delivery.handover_source.BATCH_BYTES", 25)
    names = [segment(tmp_path / "a", number) for number in range(5)]
    reader, limit = HandoverReader([tmp_path / "a"], 1), None
    first = reader.latestOffset({}, limit)  # type: ignore[arg-type]  # the source has its own
    second = reader.latestOffset(first, limit)  # type: ignore[arg-type]  # as above
    assert [*first.values(), *second.values()] == [names[2], names[4]]


def test_segments_are_deleted_with_their_batch_but_for_the_newest(tmp_path: Path) -> None:
    names = [segment(tmp_path / "a", number) for number in range(4)]
    HandoverReader([tmp_path / "a"], 1).commit({str(tmp_path / "a"): names[2]})
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == names[2:]
