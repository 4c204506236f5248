"""The log of direct notifications: its lines, its file, and what a crash leaves of it."""

from __future__ import annotations

import asyncio
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.smp_router.store.logs.test_store_files import abandon, opened
from tests.unit.smp_router.store.samples import (
    a_location,
    a_notifier,
    a_packet,
    a_queue,
    a_service,
    ids,
    keys,
    some_bytes,
    times,
)
from tocsin.durable.log_fields import BadLogLine
from tocsin.errors import DecodeError, StoreError
from tocsin.protocol.addresses import RouterLocation, parse_host
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.smp_router.store.interface import NtfRouterRecord, WaitingPacket
from tocsin.smp_router.store.logs import direct_log as smp_direct_file
from tocsin.smp_router.store.logs.direct_log import (
    DirectChange,
    MinimumPrioritySet,
    NtfRouterSet,
    PacketAdded,
    PacketRemoved,
    decode_direct_line,
    direct_lines,
)
from tocsin.smp_router.store.logs.log_reading import DIRECT_LOG, STORE_LOG
from tocsin.smp_router.store.logs.store_files import read_smp_store
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore

LOCATION: Final = RouterLocation(("ntf.example", "::1"), "443", bytes(32))
VECTORS: Final[list[tuple[DirectChange, bytes]]] = [
    (
        NtfRouterSet(NtfRouterRecord(b"id", RouterLocation(("a.b",), "", bytes(32)), b"key", 17)),
        b"NTF_ROUTER aWQ= bnRmOi8vQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQT1AYS5i a2V5 17",
    ),
    (MinimumPrioritySet(b"nid", MinimumPriority.HIGH), b"PRIORITY bmlk 3"),
    (PacketRemoved(b"pid"), b"DONE cGlk"),
]


def is_host(text: str) -> bool:
    with suppress(DecodeError):
        return parse_host(text) == text
    return False


hosts: Final = st.sampled_from(["127.0.0.1", "::1", "abc.onion"]) | st.text(min_size=1, max_size=20).filter(
    is_host
)
locations: Final = st.builds(
    RouterLocation,
    st.lists(hosts, min_size=1, max_size=3).map(tuple),
    st.sampled_from(["", "443", "1"]),
    st.binary(min_size=32, max_size=32),
)
changes: Final = st.one_of(
    st.builds(NtfRouterSet, st.builds(NtfRouterRecord, ids, locations, st.none() | keys, times)),
    st.builds(MinimumPrioritySet, ids, st.sampled_from(MinimumPriority)),
    st.builds(PacketAdded, st.builds(WaitingPacket, ids, times, locations, st.none() | ids, keys)),
    st.builds(PacketRemoved, ids),
)


@pytest.mark.parametrize(("change", "line"), VECTORS)
def test_a_line_is_as_documented(change: DirectChange, line: bytes) -> None:
    assert change.encode() == line
    assert decode_direct_line(line) == change


@given(changes)
def test_every_change_can_be_read_back(change: DirectChange) -> None:
    line = change.encode()
    assert b"\n" not in line
    assert decode_direct_line(line) == change


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"NOTHING aWQ=",
        b"PRIORITY bmlk 4",
        b"PRIORITY bmlk x",
        b"PRIORITY bmlk",
        b"DONE",
        b"DONE !",
        b"NTF_ROUTER aWQ= aWQ= a2V5 17",
        b"NTF_ROUTER aWQ= /w== a2V5 17",
        b"NTF_ROUTER aWQ= _w== a2V5 17",
        b"PACKET cGlk 17 - - cGFja2V0",
    ],
)
def test_what_is_no_line_is_refused(line: bytes) -> None:
    with pytest.raises(BadLogLine):
        decode_direct_line(line)


def filled(store: SmpMemoryStore) -> bytes:
    """One of each; the id of the notifier."""
    service, notifier = a_service(), a_notifier()
    store.add_service(service)
    assert store.add_queue(replace(a_queue(), notifier=notifier))
    store.direct.set_ntf_router(NtfRouterRecord(service.service_id, a_location(), some_bytes(44), 17))
    store.direct.set_minimum_priority(notifier.notifier_id, MinimumPriority.OFF)
    assert store.direct.add_packet(a_packet(a_location(), notifier.notifier_id))
    assert store.direct.add_packet(a_packet(a_location()))
    return notifier.notifier_id


def lines_of(store: SmpMemoryStore) -> list[bytes]:
    return sorted(direct_lines(store.direct))


def file_lines(folder: Path) -> list[bytes]:
    return sorted((folder / DIRECT_LOG).read_bytes().splitlines())


async def test_there_is_no_file_without_direct_notifications(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    store.add_queue(a_queue())
    await files.close()
    _, files = opened(tmp_path)
    await files.close()
    assert not (tmp_path / DIRECT_LOG).exists()


async def test_the_reference_s_files_hold_nothing_of_it(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    filled(store)
    await files.close()
    tags = {line.split()[0] for line in (tmp_path / STORE_LOG).read_bytes().splitlines()}
    assert tags == {b"NEW_SERVICE", b"CREATE"}
    assert stat.S_IMODE((tmp_path / DIRECT_LOG).stat().st_mode) == 0o600


async def test_a_start_makes_it_compact(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    notifier_id = filled(store)
    for minimum in (MinimumPriority.HIGH, MinimumPriority.ALL, MinimumPriority.PRIORITY):
        store.direct.set_minimum_priority(notifier_id, minimum)
    passing = a_packet(a_location())
    store.direct.add_packet(passing)
    store.direct.remove_packet(passing.packet_id)
    wanted = lines_of(store)
    await files.close()
    assert len(file_lines(tmp_path)) > len(wanted)
    for _ in range(2):
        store, files = opened(tmp_path)
        abandon(files)
        assert lines_of(store) == file_lines(tmp_path) == wanted


async def test_a_compact_one_is_left_alone(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    filled(store)
    await files.close()
    before = (tmp_path / DIRECT_LOG).stat()
    _, files = opened(tmp_path)
    await files.close()
    after = (tmp_path / DIRECT_LOG).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


async def test_it_is_written_anew_when_most_of_it_is_outdated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smp_direct_file, "LEAST_BYTES", 10_000)
    store, files = opened(tmp_path)
    filled(store)
    for _ in range(100):
        passing = a_packet(a_location())
        store.direct.add_packet(passing)
        store.direct.remove_packet(passing.packet_id)
        await store.commit()
    assert (tmp_path / DIRECT_LOG).stat().st_size > 50_000
    await files.maintain()
    assert file_lines(tmp_path) == lines_of(store)
    await files.maintain()
    last = a_packet(a_location())
    store.direct.add_packet(last)
    await store.commit()
    abandon(files)
    again, files = opened(tmp_path)
    abandon(files)
    assert lines_of(again) == lines_of(store)
    assert again.direct.packet(last.packet_id) == last


async def test_changes_made_while_it_is_written_anew_are_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smp_direct_file, "LEAST_BYTES", 0)
    store, files = opened(tmp_path)
    filled(store)
    await store.commit()
    before = a_packet(a_location())
    store.direct.add_packet(before)  # waits for the commit that writes the file anew
    rewriting = asyncio.create_task(files.maintain())
    await asyncio.sleep(0)  # it has begun
    during = a_packet(a_location())
    store.direct.add_packet(during)
    store.direct.remove_packet(before.packet_id)
    await rewriting
    await store.commit()
    abandon(files)
    again, files = opened(tmp_path)
    abandon(files)
    assert lines_of(again) == lines_of(store)
    assert again.direct.packet(during.packet_id) == during


async def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    filled(store)
    await store.commit()
    abandon(files)
    path = tmp_path / DIRECT_LOG
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for length in (last + 1, len(whole) - 1):
        path.write_bytes(whole[:length])
        again, files = opened(tmp_path)
        abandon(files)
        assert files.report.torn_bytes == length - last
        assert path.read_bytes() == whole[:last]
        assert again.direct.packet_count() == 1


def with_line(folder: Path, line: bytes) -> None:
    with (folder / DIRECT_LOG).open("ab") as file:
        file.write(line + b"\n")


async def test_a_broken_line_stops_the_start_unless_it_may_be_left_out(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    filled(store)
    await files.close()
    with_line(tmp_path, b"BROKEN")
    with pytest.raises(StoreError, match=rf"{DIRECT_LOG}, line 5: "):
        opened(tmp_path)
    again, files = opened(tmp_path, skip_broken_lines=True)
    abandon(files)
    assert lines_of(again) == lines_of(store) == file_lines(tmp_path)
    assert (tmp_path / f"{DIRECT_LOG}.broken").read_bytes() == b"BROKEN\n"


@pytest.mark.parametrize(
    "change",
    [
        NtfRouterSet(NtfRouterRecord(b"nobody", LOCATION)),
        MinimumPrioritySet(b"nobody", MinimumPriority.OFF),
        PacketAdded(WaitingPacket(b"pid", 17, LOCATION, b"nobody", b"packet")),
        PacketRemoved(b"nobody"),
    ],
)
async def test_lines_about_what_is_not_there_are_left_out(tmp_path: Path, change: Any) -> None:
    """As when the reference, which knows nothing of this file, has deleted a queue."""
    store, files = opened(tmp_path)
    filled(store)
    await files.close()
    with_line(tmp_path, change.encode())
    read, report = read_smp_store(tmp_path)
    assert lines_of(read) == lines_of(store)
    assert report.skipped == 0
    again, files = opened(tmp_path)
    abandon(files)
    assert lines_of(again) == file_lines(tmp_path) == lines_of(store)


async def test_it_is_on_disk_before_the_store_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between the two writes leaves a packet that ends an association rather than loses it."""
    store, files = opened(tmp_path)
    notifier_id = filled(store)
    await store.commit()
    queue = store.queue_by_notifier(notifier_id)
    assert queue is not None

    def power_cut(_lines: bytes) -> None:
        raise StoreError("the power failed")

    monkeypatch.setattr(files._journal._store_log, "append", power_cut)
    ending = a_packet(a_location())
    store.direct.add_packet(ending)
    store.delete_queue(queue.recipient_id)
    with pytest.raises(StoreError, match="power"):
        await store.commit()
    abandon(files)
    again, files = opened(tmp_path)
    abandon(files)
    assert again.direct.packet(ending.packet_id) == ending
    assert again.queue_by_notifier(notifier_id) is not None
