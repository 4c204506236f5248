"""The streaming source over hand-over folders: rows, offsets, batches and deletion of segments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tocsin.ntf_router.delivery.channels.places import RouterPlace
from tocsin.ntf_router.delivery.handover_rows import HandedRow, RowKind
from tocsin.pipeline.delivery.handover_source import (
    ARROW,
    SCHEMA,
    STATE,
    WAKE,
    HandoverReader,
)
from tocsin.pipeline.delivery.sink_notes import SinkNote, SinkNotes

LIMIT: Any = None


def row(number: int, token: str = "00", kind: str = RowKind.MESSAGE) -> HandedRow:
    return HandedRow("life", number, kind, "apns_test", token, "q", "n", 1.5, 2, b"box")


def segment(folder: Path, number: int, *rows: HandedRow) -> str:
    folder.mkdir(exist_ok=True)
    name = f"pending-{number:020d}-1-1.jsonl"
    lines = [msgspec.json.encode(each) for each in rows or [row(number)]]
    (folder / name).write_bytes(b"\n".join(lines) + b"\n")
    return name


def reader_of(folders: list[Path], shards: int, notes: Path) -> HandoverReader:
    places = [RouterPlace(str(each)) for each in folders]
    return HandoverReader({each.name: each.channel() for each in places}, shards, SinkNotes(notes))


def read(reader: HandoverReader, start: dict[str, str], end: dict[str, str]) -> list[dict[str, Any]]:
    return [
        found
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for found in batch.to_pylist()
    ]


def test_rows_are_notifications(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    segment(folder, 1, row(1), HandedRow("life", 2, "verification", "apns_test", "01"))
    reader = reader_of([folder], 2, tmp_path)
    found = read(reader, {}, reader.latestOffset({}, LIMIT))
    assert [name.split()[0] for name in SCHEMA.split(", ")] == ARROW.names == list(found[0])
    router = RouterPlace(str(folder)).name
    assert [(each["router"], each["segment"]) for each in found] == [(router, 1), (router, 1)]
    assert [each["priority"] for each in found] == ["alert", "background"]
    assert found[0]["box"] == b"box"
    assert (found[0]["received_at"], found[0]["attempt"]) == (1.5, 2)


def test_rows_of_a_token_go_to_the_same_shard_and_a_new_epoch_to_all(tmp_path: Path) -> None:
    tokens = [f"{number:02x}" for number in range(20)]
    segment(tmp_path / "a", 1, row(0, kind=RowKind.BEGIN), *(row(1, each) for each in (*tokens, *tokens)))
    reader = reader_of([tmp_path / "a"], 4, tmp_path)
    found = read(reader, {}, reader.latestOffset({}, LIMIT))
    begun = [each["shard"] for each in found if each["kind"] == "begin"]
    assert len(set(begun)) == len(begun) == 4
    shards = [each["shard"] for each in found if each["kind"] == "message"]
    assert shards[:20] == shards[20:]
    assert set(shards) == set(begun)


def test_a_torn_line_and_a_deleted_segment_are_left_out(tmp_path: Path) -> None:
    names = [segment(tmp_path / "a", number) for number in (1, 2, 3)]
    reader = reader_of([tmp_path / "a"], 1, tmp_path)
    end = reader.latestOffset({}, LIMIT)
    with (tmp_path / "a" / names[0]).open("ab") as file:
        file.write(b'["life",9,\n["life",10,"message","apns_test","no number"]\ntorn')
    [part] = reader.partitions({}, end)
    (tmp_path / "a" / names[1]).unlink()
    [batch] = reader.read(part)
    assert batch.column("id").to_pylist() == [1, 3]


def test_a_batch_has_the_same_segments_when_it_is_planned_again(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    names = [segment(folder, number) for number in (1, 2) for folder in folders]
    reader = reader_of(folders, 1, tmp_path)
    end = reader.latestOffset({}, LIMIT)
    assert set(end.values()) == set(names[2:])
    planned = reader.partitions({}, end)
    found = read(reader, {}, end)
    for folder in folders:
        segment(folder, 3)
    assert reader.partitions({}, end) == planned
    assert read(reader, {}, end) == found
    assert [each["id"] for each in found] == [1, 2, 1, 2]
    assert reader.partitions(end, end) == []


def test_a_backlog_is_worked_off_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [segment(tmp_path / "a", number) for number in range(5)]
    size = (tmp_path / "a" / names[0]).stat().st_size
    monkeypatch.setattr("tocsin.pipeline.delivery.handover_source.BATCH_BYTES", 2.5 * size)
    monkeypatch.setattr("tocsin.pipeline.delivery.handover_source.TASK_BYTES", 2 * size)
    reader = reader_of([tmp_path / "a"], 1, tmp_path)
    first = reader.latestOffset({}, LIMIT)
    second = reader.latestOffset(first, LIMIT)
    assert [*first.values(), *second.values()] == [names[2], names[4]]
    assert len(reader.partitions({}, first)) == 2
    assert len(reader.partitions(first, second)) == 1


def test_segments_are_deleted_with_their_batch_but_for_the_newest(tmp_path: Path) -> None:
    names = [segment(tmp_path / "a", number) for number in range(4)]
    reader_of([tmp_path / "a"], 1, tmp_path).commit({str(tmp_path / "a"): names[2]})
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == names[2:]


def test_shards_are_woken_when_a_push_is_to_be_repeated_and_not_before(tmp_path: Path) -> None:
    reader = reader_of([tmp_path / "a"], 3, tmp_path)
    assert reader.latestOffset({}, LIMIT) == {}
    SinkNotes(tmp_path).write(SinkNote(4_000_000_000.0))
    assert reader.latestOffset({}, LIMIT) == {}
    SinkNotes(tmp_path).write(SinkNote(1.5))
    end = reader.latestOffset({}, LIMIT)
    found = read(reader, {}, end)
    assert [each["kind"] for each in found] == [WAKE] * 3
    assert len({each["shard"] for each in found}) == 3
    assert reader.partitions(end, end) == []


def test_state_that_the_job_carries_comes_with_the_rows_of_its_batch(tmp_path: Path) -> None:
    notes = SinkNotes(tmp_path)
    reader = reader_of([tmp_path / "a"], 3, tmp_path)
    segment(tmp_path / "a", 1)
    first = reader.latestOffset({}, LIMIT)
    assert STATE not in first
    notes.keep_state(1, {7: b"old"})
    notes.write(SinkNote(state=1))
    assert reader.latestOffset(first, LIMIT) == first  # a state alone is no reason for a batch
    segment(tmp_path / "a", 2)
    second = reader.latestOffset(first, LIMIT)
    notes.keep_state(2, {7: b"new"})
    notes.write(SinkNote(state=2))
    for _ in range(2):  # a batch that is planned again has the same state
        found = read(reader, first, second)
        assert [(each["shard"], each["box"]) for each in found if each["kind"] == STATE] == [(7, b"old")]
        assert len(found) == 2
    reader.commit(second)
    assert notes.state(1) == {7: b"old"}
    segment(tmp_path / "a", 3)
    third = reader.latestOffset(second, LIMIT)
    assert [each["box"] for each in read(reader, second, third) if each["kind"] == STATE] == [b"new"]
    reader.commit(third)
    assert (notes.state(1), notes.state(2)) == ({}, {7: b"new"})
    notes.write(SinkNote())
    segment(tmp_path / "a", 4)
    fourth = reader.latestOffset(third, LIMIT)
    assert [each["kind"] for each in read(reader, third, fourth)] == ["message"]
