"""Undoes migrations of a schema, newest first, so that an older version of Tocsin can use it.

A migration names what older versions have no place for. If there is such a row, nothing is undone unless the operator
accepts the loss. Everything happens in one transaction: a store is at one version or at the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tocsin.durable.postgres.database_errors import AnyConnection
from tocsin.durable.schema_versions import refuse_loss
from tocsin.errors import StoreError


class Loss(NamedTuple):
    """Rows that an older version cannot hold, or cannot use."""

    what: str
    rows: str
    """The end of a `SELECT count(*) FROM`."""


class Undo(NamedTuple):
    """The way back from one migration."""

    name: str
    sql: str | None
    """None if there is nothing before it."""
    losses: tuple[Loss, ...]
    search_path: str
    record: str
    """The table that has the name of the migration."""


async def undo(
    connection: AnyConnection, steps: Sequence[Undo], keep: str, *, lose_data: bool, dry_run: bool
) -> list[str]:
    """Undo all steps or none, and return what was lost. Raises StoreError.

    A dry run does everything and rolls it back, so that it finds what the real one would.
    """
    transaction = connection.transaction()
    await transaction.start()
    try:
        lost = await _undo(connection, steps, keep, lose_data=lose_data)
    except BaseException:
        await transaction.rollback()
        raise
    await (transaction.rollback() if dry_run else transaction.commit())
    return lost


async def _undo(connection: AnyConnection, steps: Sequence[Undo], keep: str, *, lose_data: bool) -> list[str]:
    lost = []
    for step in steps:  # counted before anything is undone: tables of one step may name those of another
        await connection.execute(f"SET LOCAL search_path TO {step.search_path}")
        for loss in step.losses:
            count = await connection.fetchval(f"SELECT count(*) FROM {loss.rows}")  # noqa: S608 - no input
            if count:
                lost.append(f"{count} {loss.what}")
    if not lose_data:
        refuse_loss(lost, keep)
    for step in steps:
        if step.sql is None:
            raise StoreError(f"{step.name} has no way back: it made the first tables")
        await connection.execute(f"SET LOCAL search_path TO {step.search_path}")
        await connection.execute(step.sql)
        await connection.execute(f"DELETE FROM {step.record} WHERE name = $1", step.name)  # noqa: S608 - no input
    return lost
