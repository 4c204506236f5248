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

from tocsin.ntf_router.delivery.handover_key import read_handover_key
from tocsin.ntf_router.delivery.handover_rows import HandedRow
from tocsin.ntf_router.delivery.outcome_rows import OutcomeRow
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.pipeline.delivery.push_sender import sender_of
from tocsin.pipeline.delivery.shard_batch import RouterRow, ShardBatch
from tocsin.pipeline.spark.python_workers import settle_in
from tocsin.push.settings import ApnsSettings, FcmSettings

OUTCOMES: Final = (
    "router string, epoch string, ids array<bigint>, outcome string, reason string, since double, scope string, "
    "after double, attempt int, due_in double, pushed boolean"
)
STATE: Final = "waiting binary"
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

    keys: Mapping[str, Path]
    """The key folder of each router."""
    apns: ApnsSettings
    fcm: FcmSettings
    settings: DeliverySettings
    patience: float
    """Seconds to wait for the answers of a batch."""

    def __call__(self, key: tuple[Any, ...], frames: Iterable[Any], state: GroupState) -> Iterator[Any]:
        """Spark passes rows as frames of pandas."""
        settle_in()
        keys = {router: read_handover_key(folder) for router, folder in self.keys.items()}
        before = bytes(state.get[0]) if state.exists else b""
        batch = ShardBatch(before, keys, self.settings, time.time())
        batch.take(row for frame in frames for row in _rows(frame))
        sender_of(self.apns, self.fcm).drive(partial(batch.push, patience=self.patience))
        after = batch.state
        if after != before:  # Spark writes what is set, also if it is the same
            if after:
                state.update((after,))
            else:
                state.remove()
        yield _frame([*batch.answers, ("", _shard(key[0], batch))])


def _rows(frame: Any) -> Iterator[RouterRow]:
    columns = [frame[name].tolist() for name in _HANDED]
    rows = map(HandedRow, *columns)
    return map(RouterRow, frame["router"].tolist(), frame["segment"].tolist(), rows)


def _shard(key: int, batch: ShardBatch) -> OutcomeRow:
    return OutcomeRow(str(key), (), SHARD, since=batch.due_at, attempt=batch.waiting)


def _frame(answers: list[tuple[str, OutcomeRow]]) -> Any:
    columns: list[list[Any]] = [[router for router, _ in answers]]
    columns += [[getattr(answer, name) for _, answer in answers] for name in _ARROW.names[1:]]
    return pa.table(columns, schema=_ARROW).to_pandas()
