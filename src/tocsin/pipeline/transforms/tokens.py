"""Token changes and push outcomes → number of tokens per day and change."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS
from tocsin.pipeline.schemas.notifications import moment
from tocsin.pipeline.transforms.row_columns import TEXT, numbers_of, text_column, texts_of
from tocsin.pipeline.transforms.small_groups import shown_categories
from tocsin.pipeline.transforms.table_columns import Columns, columns_of

DELETED: Final = "DELETED"
PUSHED: Final = "pushed"
DEAD: Final = "dead"
TRIED: Final = (Stage.ATTEMPTED, Stage.FAILED)
NEEDED: Final = ("token", "provider", "reason", *map(moment, (*TRIED, Stage.ACCEPTED)))
"""The columns of notifications by which tokens are counted."""


class TokenChange(NamedTuple):
    provider: str | None
    change: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class TokenRows:
    """Tokens of a day, from some of its files."""

    pushes: pa.Table
    """A row for each provider and token: whether a push was `accepted`, and the `reason` that counts if none was."""
    changes: pa.Table
    """A row for each token, provider and status."""

    def part(self, number: int, parts: int) -> TokenRows:
        """The tokens of which all rows are in the same part."""
        return TokenRows(*(_part(each, number, parts) for each in (self.pushes, self.changes)))


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Numbers of tokens of a day. They add up if no token is in two parts."""

    pushed: Counter[TokenChange] = field(default_factory=Counter)
    changed: Counter[tuple[str, str, frozenset[str]]] = field(default_factory=Counter)
    """By provider (empty instead of none), change, and all reasons that a token changed for."""

    def __add__(self, other: TokenCounts) -> TokenCounts:
        return TokenCounts(self.pushed + other.pushed, self.changed + other.changed)


def pushes_in(notifications: pa.Table) -> pa.Table:
    """See TokenRows. `notifications` has those columns of NEEDED that it has a value for."""
    here = set(notifications.column_names)
    if "token" not in here:
        return NO_PUSHES
    at = {
        stage: notifications[moment(stage)].is_valid()
        for stage in (*TRIED, Stage.ACCEPTED)
        if moment(stage) in here
    }
    never = pa.array(np.zeros(len(notifications), bool))
    tried = pc.or_(at.get(TRIED[0], never), at.get(TRIED[1], never))
    accepted = at.get(Stage.ACCEPTED, never)
    texts = {
        name: notifications[name] if name in here else pa.nulls(len(notifications), TEXT)
        for name in ("provider", "reason")
    }
    texts["reason"] = pc.if_else(tried, texts["reason"], pa.scalar(None, TEXT))
    rows = pa.table({"token": notifications["token"], **texts, "accepted": accepted})
    return merged_pushes([rows.filter(pc.and_(rows["token"].is_valid(), pc.or_(tried, accepted)))])


def changes_in(events: pa.Table) -> pa.Table:
    """See TokenRows. `events`: token changes with `token`, `provider` and `to_status`."""
    rows = events.select(CHANGES.names).filter(events["token"].is_valid())
    return rows.cast(CHANGES).group_by(CHANGES.names, use_threads=False).aggregate([])


def merged_pushes(parts: Sequence[pa.Table]) -> pa.Table:
    """One row for each provider and token."""
    rows = pa.concat_tables([each.select(PUSHES.names).cast(PUSHES) for each in parts])
    token = numbers_of(rows["token"])
    (provider, providers), (reason, reasons) = (texts_of(rows[name]) for name in ("provider", "reason"))
    order = np.lexsort((provider, token))
    starts = np.ones(len(order), bool)
    starts[1:] = (np.diff(token[order]) != 0) | (np.diff(provider[order]) != 0)
    index = np.cumsum(starts) - 1
    accepted, best = np.zeros(int(starts.sum()), bool), np.full(int(starts.sum()), -1, np.int32)
    np.logical_or.at(accepted, index, rows["accepted"].to_numpy()[order])
    np.maximum.at(best, index, reason[order])
    first = order[starts]
    columns = [token[first], text_column(provider[first], providers), text_column(best, reasons), accepted]
    return pa.table(columns, schema=PUSHES)


def counted_tokens(parts: Sequence[TokenRows]) -> TokenCounts:
    """All rows of the tokens of a part."""
    counts = TokenCounts()
    pushes = merged_pushes([each.pushes for each in parts])
    for row in (
        pushes.group_by(["provider", "reason", "accepted"], use_threads=False)
        .aggregate([([], "count_all")])
        .to_pylist()
    ):
        change = PUSHED if row["accepted"] else DEAD
        reason = None if row["accepted"] else row["reason"]
        counts.pushed[TokenChange(row["provider"], change, reason)] += row["count_all"]
    reasons: dict[tuple[str, str, int], set[str]] = defaultdict(set)
    for row in pa.concat_tables([each.changes for each in parts]).to_pylist():
        change, _, why = (row["to_status"] or DELETED).partition(",")
        reasons[row["provider"] or "", change, row["token"]].add(why)
    for (provider, change, _), whole in reasons.items():
        counts.changed[provider, change, frozenset(whole)] += 1
    return counts


def tokens_daily(counts: TokenCounts, *, smallest: int) -> Columns:
    """`pushed`: a push was accepted. `dead`: pushes were tried and none was accepted; one of the reasons is kept.

    Counts reasons of few tokens together, then providers of few tokens, and leaves out what is still too small.
    Everything is shown as it is if a single token is enough.
    """
    tokens = counts.pushed + _changes(counts, smallest)
    if smallest > 1:
        tokens = _with_large_counts(tokens, smallest)
    return columns_of(
        (*TokenChange._fields, "tokens"), [(*change, number) for change, number in tokens.items()]
    )


def _changes(counts: TokenCounts, smallest: int) -> Counter[TokenChange]:
    """A token may change for several reasons, so rare reasons become one before tokens are counted."""
    sizes: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for (provider, change, reasons), number in counts.changed.items():
        for reason in reasons:
            sizes[provider, change][reason] += number
    shown = {
        key: shown_categories(each, smallest=smallest) if smallest > 1 else dict(zip(each, each, strict=True))
        for key, each in sizes.items()
    }
    found: Counter[TokenChange] = Counter()
    for (provider, change, reasons), number in counts.changed.items():
        for name in {shown[provider, change][reason] for reason in reasons}:
            found[TokenChange(provider or None, change, name or None)] += number
    return found


def _with_large_counts(tokens: Counter[TokenChange], smallest: int) -> Counter[TokenChange]:
    sizes: dict[tuple[str | None, str], Counter[str]] = defaultdict(Counter)
    for (provider, change, reason), number in tokens.items():
        sizes[provider, change][reason or ""] += number
    shown = {key: shown_categories(each, smallest=smallest) for key, each in sizes.items()}
    merged: Counter[TokenChange] = Counter()
    for (provider, change, reason), number in tokens.items():
        merged[TokenChange(provider, change, shown[provider, change][reason or ""] or None)] += number
    pooled: Counter[TokenChange] = Counter()
    for each, number in merged.items():
        pooled[each if number >= smallest else TokenChange(SMALL_GROUPS, each.change, SMALL_GROUPS)] += number
    return Counter({each: number for each, number in pooled.items() if number >= smallest})


def _part(rows: pa.Table, number: int, parts: int) -> pa.Table:
    token = numbers_of(rows["token"]).view(np.uint64)
    return rows.filter(pa.array(token % np.uint64(parts) == number))


PUSHES: Final = pa.schema({"token": pa.int64(), "provider": TEXT, "reason": TEXT, "accepted": pa.bool_()})
CHANGES: Final = pa.schema({"token": pa.int64(), "provider": pa.string(), "to_status": pa.string()})
NO_PUSHES: Final = PUSHES.empty_table()
NO_CHANGES: Final = CHANGES.empty_table()
