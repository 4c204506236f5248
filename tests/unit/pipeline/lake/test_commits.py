"""Two processes that write one table: whatever comes between two steps of one, the commits of both are there, once."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tocsin.pipeline.lake.commits import CommitDraft, CommitList, DataFile, TableSnapshot
from tocsin.pipeline.lake.places import table_place

DAY = "2026-11-15"
SCHEMA = pa.schema([("n", pa.int64()), ("day", pa.string())])
WIDER = pa.schema([*SCHEMA, ("text", pa.string())])


def add_batch(commits: CommitList, key: str, number: int) -> None:
    """As LakeTable.publish does it: it asks for the last batch while it decides."""
    batch = CommitDraft(adds=(DataFile(f"{key}-{number}.parquet", 1, 10, (DAY,)),), batch=(key, number))

    def decide(_: TableSnapshot) -> CommitDraft | None:
        return None if (commits.last_batch(key) or 0) >= number else batch

    commits.add(decide)


class OvertakenCommits(CommitList):
    """Another process makes a commit before some of the steps of this one: when it loads, updates or tries."""

    def __init__(self, folder: Path, schema: pa.Schema, overtaken: Iterator[bool]) -> None:
        super().__init__(table_place(folder), schema, ("day",))
        self._other = CommitList(table_place(folder), SCHEMA, ("day",))
        self._overtaken = overtaken
        self.others = 0

    def _overtake(self) -> None:
        if next(self._overtaken, False):
            self.others += 1
            add_batch(self._other, "other", self.others)

    def _current(self) -> object:  # type: ignore[override]  # the type of the library's table is not needed here
        found = super()._current()
        self._overtake()
        return found

    def _try(self, number: int, draft: CommitDraft) -> bool:
        self._overtake()
        return super()._try(number, draft)


@settings(deadline=None, max_examples=40)
@given(steps=st.lists(st.booleans(), max_size=24), wider=st.booleans())
@example(steps=[False, True], wider=False)  # both create the table
@example(steps=[False, False, False, True], wider=False)  # while the first decides
@example(steps=[True], wider=True)  # both change the columns
def test_no_commit_is_lost_whatever_comes_between(steps: list[bool], wider: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        commits = OvertakenCommits(Path(folder), WIDER if wider else SCHEMA, iter(steps))
        for number in (1, 2, 2, 3):
            add_batch(commits, "mine", number)
        found = CommitList(table_place(Path(folder)), SCHEMA, ("day",)).snapshot()
        mine = {f"mine-{number}.parquet" for number in (1, 2, 3)}
        assert set(found.files) == mine | {f"other-{n + 1}.parquet" for n in range(commits.others)}


def test_writers_that_create_a_table_together_all_find_it(tmp_path: Path) -> None:
    """Two may both see no table: the library then refuses one of them, which goes on with the other's table."""
    writers, tables = 4, 10
    start = threading.Barrier(writers)

    def create(writer: int) -> None:
        for table in range(tables):
            commits = CommitList(table_place(tmp_path / str(table)), SCHEMA, ("day",))
            start.wait(30)
            add_batch(commits, f"writer-{writer}", 1)

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(create, range(writers)))
    for table in range(tables):
        found = CommitList(table_place(tmp_path / str(table)), SCHEMA, ("day",)).snapshot()
        assert len(found.files) == found.number == writers


def test_a_commit_is_read_once_however_often_it_is_asked_for(tmp_path: Path) -> None:
    """A build asks once for each table, and a commit of two weeks has thousands of lines."""
    commits = CommitList(table_place(tmp_path), SCHEMA, ("day",))
    add_batch(commits, "own", 1)
    changes = commits.changes_since(0)
    assert [file.path for file in changes.added] == ["own-1.parquet"]
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    assert commits._actions(1) is not None
    assert CommitList(table_place(tmp_path), SCHEMA, ("day",))._actions(1) is None
