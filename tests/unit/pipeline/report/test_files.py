from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.pipeline.report.sample_figures import EMPTY, FIGURES, server
from tocsin.errors import StoreError
from tocsin.pipeline.report.files import csv_files, write_files


def rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_files(FIGURES)[name])))


def test_every_table_of_the_page_is_a_file_with_a_header() -> None:
    assert {"accounting.csv", "funnel.csv", "latency.csv", "tokens.csv", "smp_hosts.csv"} < csv_files(
        EMPTY
    ).keys()
    assert all(text.splitlines()[0] for text in csv_files(EMPTY).values())


def test_accounting_file_adds_up() -> None:
    [found] = rows("accounting.csv")
    parts = ("accepted", "superseded", "failed", "shed", "pending", "difference")
    assert int(found["received"]) == sum(int(found[name]) for name in parts)


def test_latencies_are_microseconds_by_quantile() -> None:
    [found] = rows("latency.csv")
    assert (found["leg"], found["p50_us"], found["p99_us"]) == ("SMP router to provider", "82000", "410000")


def test_names_that_a_spreadsheet_would_run_are_made_inert() -> None:
    text = csv_files(replace(FIGURES, servers=(server("=cmd()"),)))["smp_hosts.csv"]
    assert "\n'=cmd()," in text


def test_files_are_replaced_whole_and_leave_no_drafts(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_files(folder, {"a.csv": "old"})
    [path] = write_files(folder, {"a.csv": "new\n"})
    assert path.read_bytes() == b"new\n"
    assert [each.name for each in folder.iterdir()] == ["a.csv"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot write to .*file: "):
        write_files(tmp_path / "file", {"a.csv": ""})
