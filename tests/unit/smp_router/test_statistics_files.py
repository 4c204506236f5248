"""The statistics file and the lines of days, on disk."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.smp_router.store.samples import a_message, a_notifier, a_queue
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.smp_router.statistics.statistics import DAILY_LOG, StatisticsFiles
from tocsin.smp_router.statistics.statistics_lines import parse_statistics
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore

NAME = "smp-server-stats.log"


def settings(folder: Path, **others: object) -> SmpSettings:
    return replace(SmpSettings(store=folder), **others)  # type: ignore[arg-type]


def loaded(chosen: SmpSettings) -> tuple[SmpCounters, StatisticsFiles]:
    counters = SmpCounters()
    files = StatisticsFiles(chosen, counters, SmpMemoryStore())
    files.load()
    return counters, files


def test_counters_go_on_after_a_restart(tmp_path: Path) -> None:
    for run in range(3):
        counters, files = loaded(settings(tmp_path))
        assert counters.messages_sent == 5 * run
        counters.messages_sent += 5
        files.save()
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600


def test_store_is_counted(tmp_path: Path) -> None:
    store = SmpMemoryStore()
    for queue in (a_queue(), replace(a_queue(), notifier=a_notifier())):
        store.add_queue(queue)
        store.write_message(queue.recipient_id, a_message(), 5)
    StatisticsFiles(settings(tmp_path), SmpCounters(), store).save()
    values = parse_statistics((tmp_path / NAME).read_text()).values
    assert values["qCount"] == 2
    assert "ntfCount" not in values


@pytest.mark.parametrize(
    "content", [b"", b"fromTime=never\n", b"\xff\xfe\x00", b"fromTime=2026-01-01T00:00:00Z\nx"]
)
def test_a_file_that_cannot_be_read_is_set_aside_and_counting_begins_anew(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        counters, files = loaded(settings(tmp_path))
    assert counters == SmpCounters(active=counters.active)
    [aside] = tmp_path.iterdir()
    assert aside.name.startswith(f"{NAME}.")
    assert aside.read_bytes() == content
    assert aside.name in caplog.text
    files.save()
    assert loaded(settings(tmp_path))[0].messages_sent == 0


def test_nothing_that_fails_keeps_a_router_from_stopping(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).mkdir()  # cannot be read, and a folder cannot be replaced by a file
    _, files = loaded(settings(tmp_path))
    (tmp_path / NAME).mkdir(exist_ok=True)
    files.save()
    assert "cannot save the statistics" in caplog.text


@pytest.mark.parametrize(
    ("chosen", "kept"),
    [
        (Path(NAME), True),
        (Path("elsewhere.log"), True),
        (None, False),
    ],
)
def test_where_the_file_is_can_be_chosen(tmp_path: Path, chosen: Path | None, kept: bool) -> None:
    _, files = loaded(settings(tmp_path, statistics_file=chosen))
    files.save()
    assert [path.name for path in tmp_path.iterdir()] == ([str(chosen)] if kept else [])


def test_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    for chosen in (SmpSettings(store=None), settings(tmp_path / "none")):
        loaded(chosen)[1].save()
    assert list(tmp_path.iterdir()) == []
    loaded(SmpSettings(store=None, statistics_file=tmp_path / NAME))[1].save()
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_each_day_has_a_line_if_asked(tmp_path: Path) -> None:
    counters, files = loaded(settings(tmp_path, log_stats=True))
    for day in (16, 17):
        counters.messages_sent += day
        files.end_day(datetime(2026, 11, day, 0, 0, 1, tzinfo=UTC))
    lines = (tmp_path / DAILY_LOG).read_text().splitlines()
    assert [len(line.split(",")) for line in lines] == [75, 75]
    assert [line.split(",")[4] for line in lines] == ["16", "17"]
    assert loaded(settings(tmp_path))[0].messages_sent == 0  # a day that ended is not counted again
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    loaded(settings(quiet))[1].end_day(datetime(2026, 11, 16, tzinfo=UTC))
    assert list(quiet.iterdir()) == []
