"""Segments whose names rise, whatever the clock says."""

from __future__ import annotations

from pathlib import Path

from tocsin.events.event_log import SegmentWriter


def write(folder: Path, now: float, *lines: bytes) -> None:
    writer = SegmentWriter(folder, "pending", lambda: now)
    for line in lines:
        writer.append(line)
        writer.detach()(synced=False)


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("pending-*"))]


def test_names_rise_when_the_clock_is_set_back(tmp_path: Path) -> None:
    write(tmp_path, 2000.0, b"1\n", b"2\n")
    write(tmp_path, 1000.0, b"3\n")
    assert contents(tmp_path) == [b"1\n", b"2\n", b"3\n"]


def test_names_rise_above_a_segment_that_was_left_open(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "pending", lambda: 2000.0)
    writer.append(b"1\n")  # and the process is killed
    write(tmp_path, 1000.0, b"2\n")
    assert contents(tmp_path) == [b"1\n", b"2\n"]
