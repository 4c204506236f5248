"""Files for their owner: whole or not there, and made once."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tocsin.errors import ConfigError
from tocsin.events.private_files import make_private_once
from tocsin.events.repair_plans import DriftKind, RepairAction, RepairEntry, read_plan, write_plan
from tocsin.events.replay import Overdue, read_request, write_request


def test_a_file_that_is_made_once_is_its_owners_and_stays_as_the_first_made_it(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    make_private_once(path, b"first")
    make_private_once(path, b"second")
    assert path.read_bytes() == b"first"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("folder", "mode"), [(0o755, 0o600), (0o2700, 0o600), (0o2770, 0o640)])
def test_only_a_folder_that_hands_on_its_group_opens_its_files_to_it(
    tmp_path: Path, folder: int, mode: int
) -> None:
    tmp_path.chmod(folder)
    make_private_once(tmp_path / "a.key", b"first")
    assert stat.S_IMODE((tmp_path / "a.key").stat().st_mode) == mode


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


ENTRIES = [
    RepairEntry(RepairAction.REMOVE, DriftKind.DUPLICATE, "smp://x", "an id", "ACTIVE", associated=True),
    RepairEntry(RepairAction.REPORT, DriftKind.UNKNOWN_AT_NTF, "smp://y", "another"),
]
OVERDUE = [Overdue("20000-a", 1, -2, 3, "smp.example"), Overdue("20001-b", 4, 5, 6)]
PLAN = (
    '{"plan":1,"made_at":7,"entries":2}\n'
    '{"action":"remove","kind":"duplicate","router":"smp://x","notifier_id":"an id","status":"ACTIVE",'
    '"associated":true}\n'
    '{"action":"report","kind":"unknown_at_ntf","router":"smp://y","notifier_id":"another","status":"",'
    '"associated":false}\n'
)
REQUEST = (
    '{"replay":1,"as_of":7,"entries":2}\n'
    '{"period":"20000-a","high":1,"low":-2,"received_at":3,"smp_host":"smp.example"}\n'
    '{"period":"20001-b","high":4,"low":5,"received_at":6,"smp_host":""}\n'
)


def test_a_plan_is_read_as_it_was_written_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "plan.jsonl"
    write_plan(path, 7, 2, iter(ENTRIES))
    assert path.read_text() == PLAN
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_plan(path) == ENTRIES


def test_a_request_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "request.jsonl"
    write_request(path, 7, 2, iter(OVERDUE))
    assert path.read_text() == REQUEST
    found = read_request(path)
    assert (found.as_of, found.overdue) == (7, tuple(OVERDUE))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_nothing_is_written_if_there_are_not_as_many_as_were_counted(tmp_path: Path, count: int) -> None:
    with pytest.raises(ValueError, match=f"2 entries instead of {count}"):
        write_plan(tmp_path / "plan.jsonl", 7, count, ENTRIES)
    with pytest.raises(ValueError, match=f"2 notifications instead of {count}"):
        write_request(tmp_path / "request.jsonl", 7, count, OVERDUE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a plan of `tocsin pipeline reconcile`"),
        (REQUEST, "is not a plan of `tocsin pipeline reconcile`"),
        (PLAN.replace('"plan":1', '"plan":2'), "is a plan of version 2; only 1 is supported"),
        (PLAN.replace("report", "burn"), "line 3 is not an entry of a plan"),
        (PLAN[:-9], "line 3 is not an entry of a plan"),
        (PLAN.rpartition('{"action"')[0], "1 entries instead of 2: was it cut\\? Nothing was changed"),
        (PLAN + PLAN.splitlines()[1], "3 entries instead of 2"),
    ],
)
def test_a_plan_that_is_none_or_not_whole_is_refused(tmp_path: Path, text: str, says: str) -> None:
    refused(read_plan, tmp_path, text, says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a request of `tocsin pipeline replay`"),
        (PLAN, "is not a request of `tocsin pipeline replay`"),
        (REQUEST.replace('"replay":1', '"replay":2'), "is a request of version 2; only 1 is supported"),
        (REQUEST.replace('"low":5', '"low":"5"'), "line 3 is not an entry of a request"),
        (REQUEST.rpartition('{"period"')[0], "1 notifications instead of 2: was it cut\\?$"),
    ],
)
def test_a_request_that_is_none_or_not_whole_is_refused(tmp_path: Path, text: str, says: str) -> None:
    refused(read_request, tmp_path, text, says)


def refused(read: Callable[[Path], object], folder: Path, text: str, says: str) -> None:
    path = folder / "lines.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        read(path)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the plan .*: No such file"):
        read_plan(tmp_path / "nowhere")
