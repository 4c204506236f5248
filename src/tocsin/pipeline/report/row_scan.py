"""Figures that only the rows of `notifications` have: what was lost, and how long each engine took.

There may be any number of rows. They are scanned in batches, only the needed columns of the days asked for, and memory
holds sums, distinct durations up to a limit, and a few tokens.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types
from pyarrow.dataset import Dataset  # type: ignore[import-untyped]  # it has no types

from tocsin.events.delivery_events import ENDS, Stage
from tocsin.pipeline.checks.event_checks import DAY
from tocsin.pipeline.lake.weighted_values import WeightedValues
from tocsin.pipeline.report.verdict import DeliveryLosses
from tocsin.pipeline.schemas.notifications import moment

PATIENCE: Final = 3_600_000_000
"""Microseconds within which a notification has an outcome, or arrives at the other router."""
MIDNIGHT: Final = 600_000_000
"""A notification on its way when the pseudonyms change has two of them. In the last ten minutes before, it cannot be
told whether it arrived."""
AT_ONCE: Final = {"batch_size": 1 << 17, "batch_readahead": 4, "fragment_readahead": 2}
"""Rows in a batch, and how many batches and files are read before they are needed."""


def losses(notifications: Dataset, *, now: int) -> DeliveryLosses:
    """The number of each kind. `now` in microseconds since 1970."""
    ends = reduce(lambda one, other: one + other, (_reached(end).cast(pa.int8()) for end in sorted(ENDS)))
    received, unknown = _reached(Stage.RECEIVED), _reached(Stage.UNKNOWN_QUEUE)
    received_at, sent_at = _at(Stage.RECEIVED), _at(Stage.SENT)
    gone = _reached(Stage.EXPIRED) | _reached(Stage.DROPPED)
    by_day = sent_at < (_period_day() + 1) * DAY - MIDNIGHT
    redelivered = pc.coalesce(pc.field("last_received_at") > received_at, False)
    kinds = {
        "overdue": received & (ends == 0) & (received_at < now - PATIENCE),
        "never_received": ~(received | unknown | (ends > 0) | gone) & by_day & (sent_at < now - PATIENCE),
        "unknown_queue": unknown & ~received,
        "ends_unreceived": (ends > 0) & ~received,
        "ends_twice": (ends > 1) & ~redelivered,
    }
    found: Counter[str] = Counter()
    for batch in _scan(notifications, kinds):
        for name in kinds:
            found[name] += batch[name].true_count
    return DeliveryLosses(**found)


def engine_times(
    notifications: Dataset, *, ranks: Sequence[float], smallest: int
) -> dict[str, tuple[int, ...]]:
    """By engine: how long accepted notifications took from their receipt, one value for each rank.

    Empty if an engine pushed to fewer devices than `smallest`.
    """
    took = _at(Stage.ACCEPTED) - _at(Stage.RECEIVED)
    columns = {"engine": pc.field("engine"), "token": pc.field("token"), "took": took}
    times: dict[str, WeightedValues] = defaultdict(WeightedValues)
    devices: dict[str, set[int]] = defaultdict(set)
    for batch in _scan(notifications, columns, where=pc.field("engine").is_valid() & took.is_valid()):
        for engine in pc.unique(batch["engine"]).to_pylist():
            rows = batch.filter(pc.equal(batch["engine"], engine))
            times[engine].add(pc.max_element_wise(rows["took"], 0))
            if len(devices[engine]) < smallest:
                devices[engine].update(pc.unique(rows["token"].drop_null())[:smallest].to_pylist())
    if any(len(devices[engine]) < smallest for engine in times):
        return {}
    return {engine: tuple(each.quantiles(ranks)) for engine, each in times.items()}


def _scan(
    rows: Dataset, columns: Mapping[str, pc.Expression], where: pc.Expression | None = None
) -> Iterator[Any]:
    """Batches of the computed columns, as tables: a column of one batch is one array."""
    yield from rows.scanner(columns=dict(columns), filter=where, **AT_ONCE).to_batches()


def _at(stage: Stage) -> pc.Expression:
    return pc.field(moment(stage))


def _reached(stage: Stage) -> pc.Expression:
    return _at(stage).is_valid()


def _period_day() -> pc.Expression:
    """The day of a period's pseudonym key, counted from 1970. Null for a period that names no day."""
    period = pc.field("period")
    day = pc.replace_substring_regex(period, pattern="-.*$", replacement="")
    is_number = pc.match_substring_regex(day, pattern="^[0-9]{1,6}$")
    return pc.if_else(is_number, day, pa.scalar(None, pa.string())).cast(pa.int64())
