"""The stream of `deliver`: notifications of routers → one stateful operator per shard → outcome rows for the routers.

Theory of operation. The source's rows are notifications. They are shuffled by shard, a keyed hash of the token, and
each shard is one partition. Its operator merges them with the tokens in back-off, which are its state, and pushes side
by side. Outcome rows go to the driver, which publishes them in the routers' folders; then Spark commits state and
offsets. A batch killed before that runs again, with the same rows and state, and so with the same push ids.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tocsin.errors import StoreError
from tocsin.events.event_log import OUTCOMES as OUTCOMES_FOLDER
from tocsin.ntf_router.delivery.outcome_rows import (
    BEGUN_WORD,
    SUPERSEDED_WORD,
    OutcomeRow,
    encode_outcome_rows,
)
from tocsin.pipeline.delivery.handover_source import FORMAT, HandoverSource, router_names
from tocsin.pipeline.delivery.shard_operator import OUTCOMES, SHARD, STATE, ShardOperator
from tocsin.pipeline.spark.streams import stream_id

STREAM: Final = "deliver"
FORM: Final = 2
"""The form of the checkpoint: what its state and rows are. Form 1 had no state, and rows that named files."""
FORM_FILE: Final = "tocsin-form.json"
WAKE_FILE: Final = "tocsin-wake"


class CheckpointForm(msgspec.Struct, frozen=True):
    form: int
    shards: int
    """Spark keeps the state of each shard in a partition of its own, so their number stays."""


@dataclass(frozen=True, slots=True)
class DeliveredBatch:
    number: int
    counts: Mapping[str, int]
    """Pushes by outcome."""
    waiting: int
    """Tokens in back-off."""


def checkpoint_shards(checkpoint: Path, wanted: int | None, default: int) -> int:
    """Return the number of shards of the checkpoint, which begins with `wanted` or `default`.

    Raises StoreError for one of another release or another number.
    """
    path = checkpoint / FORM_FILE
    gone = "delete it, for routers keep all that is pending"
    if path.exists():
        try:
            known = msgspec.json.decode(path.read_bytes(), type=CheckpointForm)
        except msgspec.MsgspecError as error:
            raise StoreError(f"the checkpoint {checkpoint} cannot be read: {gone}") from error
        if known.form != FORM:
            raise StoreError(f"the checkpoint {checkpoint} is of another release of Tocsin: {gone}")
        if wanted is not None and wanted != known.shards:
            raise StoreError(
                f"the checkpoint {checkpoint} has {known.shards} shards instead of {wanted}: "
                f"leave --shards out, or {gone}"
            )
        return known.shards
    if (checkpoint / "offsets").exists():
        raise StoreError(f"the checkpoint {checkpoint} is of an earlier release of Tocsin: {gone}")
    shards = wanted or default
    checkpoint.mkdir(parents=True, exist_ok=True)
    replace_file(path, msgspec.json.encode(CheckpointForm(FORM, shards)))
    return shards


def start_deliver(
    spark: SparkSession,
    folders: Sequence[Path],
    operator: ShardOperator,
    *,
    checkpoint: Path,
    interval: float,
    shards: int,
    delivered: Callable[[DeliveredBatch], None],
) -> StreamingQuery:
    """Pushes everything handed over in the folders until it is stopped. Calls `delivered` after each batch.

    Spark must be set to as many shuffle partitions as there are `shards`.
    """
    spark.dataSource.register(HandoverSource)
    wake = checkpoint / WAKE_FILE
    checkpoint.mkdir(parents=True, exist_ok=True)
    replace_file(wake, b"0")  # shards say in the first batch what waits
    options = {
        "folders": json.dumps([str(each) for each in folders]),
        "shards": str(shards),
        "wake": str(wake),
    }
    rows = spark.readStream.format(FORMAT).options(**options).load()
    outcomes = rows.groupBy("shard").applyInPandasWithState(operator, OUTCOMES, STATE, "update", "NoTimeout")
    batches = _Batches(router_names(folders), wake, stream_id(checkpoint), delivered)
    return (
        outcomes.writeStream.option("checkpointLocation", str(checkpoint))
        .outputMode("update")
        .foreachBatch(batches)
        .trigger(processingTime=f"{round(interval * 1000)} milliseconds")
        .start()
    )


@dataclass
class _Batches:
    """The sink. It publishes outcomes for the routers."""

    folders: Mapping[str, Path]
    wake: Path
    stream: str
    delivered: Callable[[DeliveredBatch], None]
    shards: dict[str, tuple[int, float | None]] = field(default_factory=dict)
    """By shard: how many tokens wait, and until when the next one."""

    def __call__(self, outcomes: DataFrame, number: int) -> None:
        answers: dict[str, list[OutcomeRow]] = {}
        try:
            pushed = outcomes.toArrow()  # once, because it pushes
        except Exception as error:
            raise _short(error) from None
        for router, *fields in zip(*(_values(each) for each in pushed.columns), strict=True):
            answers.setdefault(router, []).append(OutcomeRow(*fields))
        self.publish(answers, number)

    def publish(self, answers: Mapping[str, Sequence[OutcomeRow]], number: int) -> None:
        counts: Counter[str] = Counter()
        for router, own in answers.items():
            if not router:
                self.shards |= {
                    each.epoch: (each.attempt, each.since) for each in own if each.outcome == SHARD
                }
                continue
            counts.update(each.outcome for each in own if each.outcome not in (BEGUN_WORD, SUPERSEDED_WORD))
            publish_outcomes(self.folders[router], f"{self.stream}-{number:012d}", encode_outcome_rows(own))
        due = [until for _, until in self.shards.values() if until is not None]
        if due:
            replace_file(self.wake, str(min(due)).encode())
        else:
            self.wake.unlink(missing_ok=True)
        self.delivered(DeliveredBatch(number, counts, sum(count for count, _ in self.shards.values())))


def _short(error: Exception) -> RuntimeError:
    """The error with a text that Spark can search.

    It looks for an interruption with a pattern that overflows the stack of its thread if the text is long.
    """
    interrupted = "java.lang.InterruptedException" if "InterruptedException" in str(error) else ""
    reason = str(error).strip().partition("\n")[0][:300]
    return RuntimeError(
        f"py4j.protocol.Py4JJavaError: An error occurred while calling toArrow: {reason} {interrupted}"
    )


def _values(column: Any) -> Iterable[Any]:
    values: list[Any] = column.to_pylist()
    return map(tuple, values) if values and isinstance(values[0], list) else values


def publish_outcomes(folder: Path, key: str, lines: bytes) -> None:
    """Writes a file that the router sees whole or not at all."""
    outcomes = folder / OUTCOMES_FOLDER
    outcomes.mkdir(mode=0o700, exist_ok=True)
    replace_file(outcomes / f"{OUTCOMES_FOLDER}-{key}.jsonl", lines)


def replace_file(path: Path, data: bytes) -> None:
    """Does not sync: after a crash of the machine, the router hands over again everything without an outcome."""
    draft = path.with_name(f".draft-{path.name}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    draft.rename(path)
