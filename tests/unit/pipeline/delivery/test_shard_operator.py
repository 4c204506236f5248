"""The operator of a shard as Spark calls it: frames in, frames out, and a state that is set only when it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.doubles.delivery_engines import Meeting
from tests.unit.pipeline.delivery.test_token_pushes import KEY, rows_of, small
from tocsin.ntf_router.delivery.handover_rows import HandedRow, RowKind, opened_message
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.pipeline.delivery import shard_operator
from tocsin.pipeline.delivery.handover_source import STATE as STATE_KIND
from tocsin.pipeline.delivery.handover_source import _record_batch
from tocsin.pipeline.delivery.shard_operator import (
    CARRYING_OUTCOMES,
    OUTCOMES,
    SHARD,
    CarryingOperator,
    ShardOperator,
)
from tocsin.push.provider import RetryLater, RetryScope
from tocsin.push.settings import ApnsSettings, FcmSettings


class State:
    """Stands for Spark's `GroupState`."""

    def __init__(self) -> None:
        self.value: bytes | None = None
        self.changes = 0

    @property
    def exists(self) -> bool:
        return self.value is not None

    @property
    def get(self) -> tuple[bytes | None]:
        return (self.value,)

    def update(self, values: tuple[bytes]) -> None:
        [self.value] = values
        self.changes += 1

    def remove(self) -> None:
        self.value = None
        self.changes += 1


class Sender:
    """Answers nothing: rows that can be opened wait for the next batch."""

    def __init__(self, seen: list[float]) -> None:
        self._seen = seen

    def drive(self, work: Any) -> None:
        batch, patience = work.func.__self__, work.keywords["patience"]
        self._seen.append(patience)
        for token in batch._tokens.values():
            token.request()
            token.answered(RetryLater("429", RetryScope.TOKEN, after=20.0))


def frame(*rows: HandedRow) -> Any:
    return _record_batch([(7, "r", 1, row) for row in rows]).to_pandas()


def test_rows_come_in_outcomes_go_out_and_the_state_is_set_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting, seen = Meeting(tmp_path / "handover"), list[float]()
    assert meeting.key
    monkeypatch.setattr(shard_operator, "sender_of", lambda *_, **__: Sender(seen))
    operator = ShardOperator(
        {"r": meeting.keys}, ApnsSettings(endpoints={}), FcmSettings(), DeliverySettings(), 2.5
    )
    state: Any = State()
    begin = HandedRow("life", 0, RowKind.BEGIN)
    [told] = list(operator((7,), iter([frame(begin)]), state))
    assert list(told.columns) == [each.split()[0] for each in OUTCOMES.split(", ")]
    assert told["outcome"].tolist() == ["begun", SHARD]
    assert [list(each) for each in told["ids"]] == [[0], []]
    assert (state.exists, state.changes) == (False, 0)
    monkeypatch.setattr("tocsin.pipeline.delivery.token_pushes.opened_message", _opened)
    [told] = list(operator((7,), iter([frame(*rows_of(small(2)))]), state))
    assert told["outcome"].tolist() == ["retry", SHARD]
    assert 20 <= told["due_in"].tolist()[0] <= 24
    assert told["attempt"].tolist() == [0, 1]  # none failed before; one token waits
    assert (state.exists, state.changes) == (True, 1)
    monkeypatch.setattr(Sender, "drive", lambda self, work: None)
    list(operator((7,), iter([frame()]), state))
    assert state.changes == 1
    list(operator((7,), iter([frame(HandedRow("new", 3, RowKind.BEGIN))]), state))
    assert (state.exists, state.changes) == (False, 2)
    assert seen == [2.5, 2.5]


def _opened(row: HandedRow, _key: bytes) -> Any:
    """Rows of these tests have a key of their own."""
    return opened_message(row, KEY)


def test_a_partition_brings_its_state_and_gives_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting, seen = Meeting(tmp_path / "handover"), list[float]()
    assert meeting.key
    monkeypatch.setattr(shard_operator, "sender_of", lambda *_, **__: Sender(seen))
    monkeypatch.setattr("tocsin.pipeline.delivery.token_pushes.opened_message", _opened)
    operator = CarryingOperator(
        ShardOperator({"r": meeting.keys}, ApnsSettings(endpoints={}), FcmSettings(), DeliverySettings(), 2.5)
    )
    assert list(operator(iter([]))) == []
    assert list(operator(iter([_record_batch([])]))) == []

    def told(*rows: HandedRow) -> dict[str, list[Any]]:
        [batch] = operator(iter([_record_batch([(7, "r", 1, row)]) for row in rows]))
        assert batch.schema.names == [each.split()[0] for each in CARRYING_OUTCOMES.split(", ")]
        columns: dict[str, list[Any]] = batch.to_pydict()
        return columns

    first = told(*rows_of(small(2)))
    assert (first["outcome"], first["epoch"][-1]) == (["retry", SHARD], "7")
    assert first["state"][0] is None
    monkeypatch.setattr(Sender, "drive", lambda self, work: None)
    carried = HandedRow("", 0, STATE_KIND, box=first["state"][-1])
    again = told(carried)
    assert (again["outcome"], again["state"]) == ([SHARD], [first["state"][-1]])
    assert again["attempt"] == [1]
    after = told(carried, HandedRow("new", 3, RowKind.BEGIN))
    assert after["state"][-1] == b""
