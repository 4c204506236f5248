"""The stateful operator of `deliver`, as Spark calls it on executors: for each shard, its rows and its state."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyspark.sql.streaming.state import GroupState

from tocsin.ntf_router.delivery.channels.handover_key import job_key
from tocsin.ntf_router.delivery.handover_rows import HandedRow
from tocsin.ntf_router.delivery.outcome_rows import OutcomeRow
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.pipeline.delivery.handover_source import STATE as STATE_KIND
from tocsin.pipeline.delivery.push_sender import sender_of
from tocsin.pipeline.delivery.shard_batch import RouterRow, ShardBatch
from tocsin.pipeline.spark.python_workers import freeze_imports
from tocsin.push.settings import ApnsSettings, FcmSettings, WebPushSettings

OUTCOMES: Final = (
    "router string, epoch string, ids array<bigint>, outcome string, reason string, since double, scope string, "
    "after double, attempt int, due_in double, pushed boolean"
)
STATE: Final = "waiting binary"
STATE_COLUMN: Final = "state"
CARRYING_OUTCOMES: Final = f"{OUTCOMES}, {STATE_COLUMN} binary"
"""With the new state of the shard in the row about it."""
SHARD: Final = "shard"
"""The outcome of the row that tells how many tokens of a shard wait (`attempt`), and until when (`since`)."""
warnings.filterwarnings(  # Spark's own code does it in each batch; the version of pandas is pinned
    "ignore", "The behavior of DataFrame concatenation", FutureWarning
)
_ARROW: Final = pa.schema(
    [
        ("router", pa.string()),
        ("epoch", pa.string()),
        ("ids", pa.list_(pa.int64())),
        ("outcome", pa.string()),
        ("reason", pa.string()),
        ("since", pa.float64()),
        ("scope", pa.string()),
        ("after", pa.float64()),
        ("attempt", pa.int32()),
        ("due_in", pa.float64()),
        ("pushed", pa.bool_()),
    ]
)
_HANDED: Final = tuple(HandedRow.__struct_fields__)


@dataclass(frozen=True, slots=True)
class ShardOperator:
    """It travels through Spark, so it holds the folders of keys instead of keys."""

    keys: Mapping[str, Path | None]
    """The key folder of each router. None: the key is in the environment."""
    apns: ApnsSettings
    fcm: FcmSettings
    settings: DeliverySettings
    patience: float
    """Seconds to wait for the answers of a batch."""
    webpush: WebPushSettings | None = None
    public_only: bool = True
    """Web Push services at private addresses are not dialled."""

    def __call__(self, key: tuple[Any, ...], frames: Iterable[Any], state: GroupState) -> Iterator[Any]:
        """Spark keeps the state, and passes rows as frames of pandas."""
        freeze_imports()
        before = bytes(state.get[0]) if state.exists else b""
        batch = self.pushed(before, (row for frame in frames for row in _rows(frame)))
        after = batch.state
        if after != before:  # Spark writes what is set, also if it is the same
            if after:
                state.update((after,))
            else:
                state.remove()
        yield _table([*batch.answers, ("", _shard(key[0], batch))]).to_pandas()

    def pushed(self, state: bytes, rows: Iterable[RouterRow]) -> ShardBatch:
        """Push the rows of one shard, and what waits in its state."""
        keys = {router: job_key(folder) for router, folder in self.keys.items()}
        batch = ShardBatch(state, keys, self.settings, time.time())
        batch.take(rows)
        sender = sender_of(self.apns, self.fcm, self.webpush, public_only=self.public_only)
        sender.drive(partial(batch.push, patience=self.patience))
        return batch


@dataclass(frozen=True, slots=True)
class CarryingOperator:
    """The same for a job whose state comes with the rows, and goes with the outcomes. A partition is a shard."""

    operator: ShardOperator

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        key, state = None, b""
        rows: list[RouterRow] = []
        for each in batches:
            columns = each.to_pydict()
            handed = map(HandedRow, *(columns[name] for name in _HANDED))
            for key, router, number, row in zip(  # noqa: B007 - all rows of a partition have the same key
                columns["shard"], columns["router"], columns["segment"], handed, strict=True
            ):
                if row.kind == STATE_KIND:
                    state = row.box
                else:
                    rows.append(RouterRow(router, number, row))
        if key is None:
            return
        batch = self.operator.pushed(state, rows)
        told = [*batch.answers, ("", _shard(key, batch))]
        states = [None] * len(batch.answers) + [batch.state]
        table = _table(told).append_column(STATE_COLUMN, pa.array(states, pa.binary()))
        yield from table.combine_chunks().to_batches()


def _rows(frame: Any) -> Iterator[RouterRow]:
    columns = [frame[name].tolist() for name in _HANDED]
    rows = map(HandedRow, *columns)
    return map(RouterRow, frame["router"].tolist(), frame["segment"].tolist(), rows)


def _shard(key: int, batch: ShardBatch) -> OutcomeRow:
    return OutcomeRow(str(key), (), SHARD, since=batch.due_at, attempt=batch.waiting)


def _table(answers: list[tuple[str, OutcomeRow]]) -> pa.Table:
    columns: list[list[Any]] = [[router for router, _ in answers]]
    columns += [[getattr(answer, name) for _, answer in answers] for name in _ARROW.names[1:]]
    return pa.table(columns, schema=_ARROW)
