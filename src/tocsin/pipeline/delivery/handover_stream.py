"""The stream of `deliver`: notifications of routers → one stateful operator per shard → outcome rows for the routers.

Theory of operation. The source's rows are notifications. They are shuffled by shard, a keyed hash of the token, and
each shard is one partition. Its operator merges them with the tokens in back-off, which are its state, and pushes side
by side. Outcome rows go to the driver, which publishes them on the routers' channels; then Spark commits state and
offsets. A batch killed before that runs again, with the same rows and state, and so with the same push ids.

Spark's executors write state into the checkpoint themselves. Without a folder that they share with the driver, the job
carries the state instead: it is rows from the source, and comes back with the outcomes (`sink_notes`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tocsin.errors import StoreError
from tocsin.ntf_router.delivery.channels.channel import JobChannel
from tocsin.ntf_router.delivery.channels.folder_channel import replace_file
from tocsin.ntf_router.delivery.channels.places import RouterPlace
from tocsin.ntf_router.delivery.outcome_rows import (
    BEGUN_WORD,
    SUPERSEDED_WORD,
    OutcomeRow,
    encode_outcome_rows,
)
from tocsin.pipeline.delivery.handover_source import FORMAT, HandoverSource
from tocsin.pipeline.delivery.shard_operator import (
    CARRYING_OUTCOMES,
    OUTCOMES,
    SHARD,
    STATE,
    STATE_COLUMN,
    CarryingOperator,
    ShardOperator,
)
from tocsin.pipeline.delivery.sink_notes import SinkNote, SinkNotes
from tocsin.pipeline.spark.streams import stream_id

STREAM: Final = "deliver"
FORM: Final = 2
"""The form of the checkpoint: what its state and rows are. Form 1 had no state, and rows that named files."""
FORM_FILE: Final = "tocsin-form.json"


class CheckpointForm(msgspec.Struct, frozen=True):
    form: int
    shards: int
    """Spark keeps the state of each shard in a partition of its own, so their number stays."""
    carried: bool = False
    """The job carries the state, which is not Spark's."""


@dataclass(frozen=True, slots=True)
class DeliveredBatch:
    number: int
    counts: Mapping[str, int]
    """Pushes by outcome."""
    waiting: int
    """Tokens in back-off."""


def checkpoint_shards(checkpoint: Path, wanted: int | None, default: int, *, carried: bool = False) -> int:
    """Return the number of shards of the checkpoint, which begins with `wanted` or `default`.

    Raises StoreError for one of another release, another number, or another place of the state.
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
        if known.carried != carried:
            raise StoreError(
                f"the checkpoint {checkpoint} is of a job whose routers were reached over another channel: {gone}"
            )
        return known.shards
    if (checkpoint / "offsets").exists():
        raise StoreError(f"the checkpoint {checkpoint} is of an earlier release of Tocsin: {gone}")
    shards = wanted or default
    checkpoint.mkdir(parents=True, exist_ok=True)
    replace_file(path, msgspec.json.encode(CheckpointForm(FORM, shards, carried)))
    return shards


def start_deliver(
    spark: SparkSession,
    routers: Sequence[RouterPlace],
    operator: ShardOperator,
    *,
    checkpoint: Path,
    interval: float,
    shards: int,
    delivered: Callable[[DeliveredBatch], None],
) -> StreamingQuery:
    """Pushes everything that routers hand over until it is stopped. Calls `delivered` after each batch.

    Spark must be set to as many shuffle partitions as there are `shards`.
    """
    spark.dataSource.register(HandoverSource)
    checkpoint.mkdir(parents=True, exist_ok=True)
    notes = SinkNotes(checkpoint)
    notes.write(SinkNote(0.0, notes.read().state))  # shards say in the first batch what waits
    options = {
        "routers": msgspec.json.encode(list(routers)).decode(),
        "shards": str(shards),
        "notes": str(checkpoint),
    }
    rows = spark.readStream.format(FORMAT).options(**options).load()
    carried = carries_state(routers)
    if carried:
        by_shard = rows.repartition(shards, "shard")
        outcomes = by_shard.mapInArrow(CarryingOperator(operator), CARRYING_OUTCOMES)
    else:
        by_key = rows.groupBy("shard")
        outcomes = by_key.applyInPandasWithState(operator, OUTCOMES, STATE, "update", "NoTimeout")
    channels = {each.name: each.channel() for each in routers}
    batches = _Batches(channels, notes, stream_id(checkpoint), delivered)
    return (
        outcomes.writeStream.option("checkpointLocation", str(checkpoint))
        .outputMode("append" if carried else "update")
        .foreachBatch(batches)
        .trigger(processingTime=f"{round(interval * 1000)} milliseconds")
        .start()
    )


def carries_state(routers: Iterable[RouterPlace]) -> bool:
    """Whether the job carries the state of shards, because routers, driver and executors may share no folder."""
    return not all(each.shares_folder for each in routers)


@dataclass
class _Batches:
    """The sink. It publishes outcomes for the routers."""

    channels: Mapping[str, JobChannel]
    notes: SinkNotes
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
        states: dict[int, bytes] = {}
        if STATE_COLUMN in pushed.column_names:
            carried = pushed.column(STATE_COLUMN).to_pylist()
            shards = pushed.column("epoch").to_pylist()
            states = {
                int(shard): state for shard, state in zip(shards, carried, strict=True) if state is not None
            }
            pushed = pushed.drop_columns([STATE_COLUMN])
        for router, *fields in zip(*(_values(each) for each in pushed.columns), strict=True):
            answers.setdefault(router, []).append(OutcomeRow(*fields))
        self.publish(answers, number, states)

    def publish(
        self,
        answers: Mapping[str, Sequence[OutcomeRow]],
        number: int,
        states: Mapping[int, bytes] | None = None,
    ) -> None:
        """`states`: those of shards, if the job carries them."""
        counts: Counter[str] = Counter()
        for router, own in answers.items():
            if not router:
                self.shards |= {
                    each.epoch: (each.attempt, each.since) for each in own if each.outcome == SHARD
                }
                continue
            counts.update(each.outcome for each in own if each.outcome not in (BEGUN_WORD, SUPERSEDED_WORD))
            self.channels[router].publish(f"{self.stream}-{number:012d}", encode_outcome_rows(own))
        due = [until for _, until in self.shards.values() if until is not None]
        self.notes.write(SinkNote(min(due, default=None), self._keep_state(number, states or {})))
        self.delivered(DeliveredBatch(number, counts, sum(count for count, _ in self.shards.values())))

    def _keep_state(self, number: int, states: Mapping[int, bytes]) -> int:
        """Write the state if it has changed. Returns the number of the newest."""
        newest = self.notes.read().state
        before = self.notes.state(newest)
        after = {shard: state for shard, state in {**before, **states}.items() if state}
        if after == before:
            return newest
        if not after:
            return 0
        self.notes.keep_state(number + 1, after)
        return number + 1


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
