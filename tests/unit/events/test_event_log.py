"""The event log on disk: segments that appear whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles.delivery_lines import encode_events
from tocsin.events.delivery_events import DeliveryEvent, Stage, decode_event
from tocsin.events.event_log import OPEN_PREFIX, PUBLISHED, EventLog, EventLogSettings, SegmentWriter

PATIENCE = 15.0


class Clock:
    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


def event(number: int) -> DeliveryEvent:
    return DeliveryEvent(id=str(number), stage=Stage.RECEIVED, at=number, mono=0, router="r", period="p")


def append(log: EventLog, *events: DeliveryEvent) -> None:
    log.append([encode_events(list(events))], len(events))


def published(folder: Path) -> list[list[int]]:
    """The numbers of events, by segment in the order of time."""
    return [
        [int(decode_event(line).id) for line in path.read_bytes().splitlines()]
        for path in sorted(folder.glob(PUBLISHED))
    ]


def open_segments(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{OPEN_PREFIX}*"))


def test_events_are_seen_by_readers_when_their_segment_is_whole(tmp_path: Path, clock: Clock) -> None:
    log = EventLog(tmp_path, now=clock)
    append(log, event(1), event(2))
    [path] = open_segments(tmp_path)
    assert path.name.startswith(".")  # Spark does not look at it
    assert published(tmp_path) == []
    log.close()
    assert published(tmp_path) == [[1, 2]]
    assert open_segments(tmp_path) == []
    assert log.written == 2
    assert log.lost == 0


def test_segments_end_after_their_seconds_also_when_nothing_more_comes(tmp_path: Path, clock: Clock) -> None:
    log = EventLog(tmp_path, EventLogSettings(segment_seconds=5.0), clock)
    append(log, event(1))
    clock.time += 4.9
    log.publish_if_due()
    append(log, event(2))
    clock.time += 0.1
    log.publish_if_due()
    append(log, event(3))
    log.close()
    assert published(tmp_path) == [[1, 2], [3]]


@pytest.mark.parametrize("jump", [-7200.0, 7200.0])
def test_segments_end_also_after_a_jump_of_the_clock(tmp_path: Path, clock: Clock, jump: float) -> None:
    log = EventLog(tmp_path, EventLogSettings(segment_seconds=5.0), clock)
    append(log, event(1))
    clock.time += jump
    log.publish_if_due()
    append(log, event(2))
    clock.time += 5.0
    log.publish_if_due()
    log._thread.shutdown()
    assert published(tmp_path) == [[1], [2]]


def test_segments_end_at_their_size(tmp_path: Path, clock: Clock) -> None:
    log = EventLog(tmp_path, EventLogSettings(segment_bytes=100), clock)
    for number in range(4):
        append(log, event(number))
    log.close()
    assert published(tmp_path) == [[0, 1], [2, 3]]


def test_nothing_is_written_when_nothing_happens(tmp_path: Path, clock: Clock) -> None:
    log = EventLog(tmp_path, now=clock)
    clock.time += 100
    log.publish_if_due()
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_segments_are_for_their_owner_only(tmp_path: Path, clock: Clock) -> None:
    log = EventLog(tmp_path / "new", now=clock)
    append(log, event(1))
    log.close()
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    [path] = (tmp_path / "new").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


def test_segments_are_for_a_group_that_the_folder_hands_on(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the process's umask: the pipeline is another user, who must read the events and no key."""
    tmp_path.chmod(0o2750)
    before = os.umask(0o077)
    try:
        log = EventLog(tmp_path, now=clock)
        append(log, event(1))
        log.close()
    finally:
        os.umask(before)
    [path] = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.stat().st_gid == tmp_path.stat().st_gid


def _age(path: Path, clock: Clock, seconds: float) -> None:
    os.utime(path, (clock.time - seconds, clock.time - seconds))


def test_old_segments_are_removed(tmp_path: Path, clock: Clock) -> None:
    settings = EventLogSettings(retention_seconds=100.0)
    for number in (1, 2):
        log = EventLog(tmp_path, settings, clock)
        append(log, event(number))
        log.close()
        clock.time += 1
    first, second = sorted(tmp_path.glob(PUBLISHED))
    _age(first, clock, 101.0)
    _age(second, clock, 99.0)
    log = EventLog(tmp_path, settings, clock)
    append(log, event(3))
    log.close()
    assert published(tmp_path) == [[2], [3]]


def test_the_oldest_segments_go_when_there_are_too_many_bytes(tmp_path: Path, clock: Clock) -> None:
    for number in range(5):
        log = EventLog(tmp_path, EventLogSettings(most_bytes=170), clock)
        append(log, event(number))
        log.close()
        for path in tmp_path.glob(PUBLISHED):
            _age(path, clock, 0)
        clock.time += 1
    assert published(tmp_path) == [[3], [4]]


WRITER = """
import os, sys
from pathlib import Path
from tests.unit.events.test_event_log import append, event
from tocsin.events.event_log import EventLog
folder = Path(sys.argv[1])
log = EventLog(folder)
append(log, event(1))
append(log, event(2), event(3))
torn = next(folder.glob(".open-*"))
with torn.open("ab") as file:
    file.write(b'{"id":"4","sta')
print("written", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_wrote_is_published_by_the_next_start(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
        writer.kill()
        writer.wait(PATIENCE)
    assert published(tmp_path) == []
    [left] = open_segments(tmp_path)
    assert not left.read_bytes().endswith(b"\n")
    EventLog(tmp_path).close()
    assert published(tmp_path) == [[1, 2, 3]]
    assert open_segments(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b'{"id":"1'])
def test_an_open_segment_without_a_whole_line_is_removed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"{OPEN_PREFIX}1-1-1.jsonl").write_bytes(content)
    EventLog(tmp_path).close()
    assert list(tmp_path.iterdir()) == []


FULL_DISK = """
import resource, sys
from pathlib import Path
from tests.unit.events.test_event_log import append, event
from tocsin.events.event_log import EventLog
log = EventLog(Path(sys.argv[1]))
append(log, event(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (120, resource.RLIM_INFINITY))
append(log, event(2), event(3))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
append(log, event(4))
log.close()
print(log.lost, log.written)
"""


def test_events_that_find_no_room_are_counted_and_spoil_no_others(tmp_path: Path) -> None:
    """A limit on file sizes is met in the middle of a line, as a full disk would be."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout == "2 2\n", done.stderr
    assert published(tmp_path) == [[1, 4]]
    assert "delivery events are lost" in done.stderr


def test_a_folder_that_cannot_be_made_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        EventLog(tmp_path / "file" / "events")


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
