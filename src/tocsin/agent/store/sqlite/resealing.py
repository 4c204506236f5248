"""Everything that is sealed in an agent's file, sealed anew: for another passphrase, or for none."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from tocsin.agent.store.sqlite.vault import Vault

ROW_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "receive_queues": ("connection_id", "number"),
    "send_queues": ("connection_id", "number"),
    "tokens": (),
    "tokens_to_delete": ("token_id",),
    "kept_messages": ("connection_id", "queue_number", "message_id"),
    "endpoint_secrets": ("number",),
}
"""By table, the columns that name a row in the place for which its values are sealed."""
_SUFFIX: Final = "_sealed"


def reseal(database: sqlite3.Connection, old: Vault, new: Vault) -> None:
    """Within the caller's transaction. Raises StoreError if a value was not sealed for its place."""
    for table, names in ROW_NAMES.items():
        for column in sealed_columns(database, table):
            _reseal_column(database, table, names, column, old, new)


def sealed_columns(database: sqlite3.Connection, table: str) -> list[str]:
    columns = database.execute("SELECT name FROM pragma_table_info(?)", (table,))
    return [name for (name,) in columns if name.endswith(_SUFFIX)]


def _reseal_column(
    database: sqlite3.Connection, table: str, names: Sequence[str], column: str, old: Vault, new: Vault
) -> None:
    found = database.execute(
        f"SELECT {', '.join((column, *names))} FROM {table} WHERE {column} IS NOT NULL"  # noqa: S608
    ).fetchall()
    condition = " AND ".join(f"{name} = ?" for name in names) or "TRUE"
    for sealed, *row in found:
        place = _place(table, row, column)
        database.execute(
            f"UPDATE {table} SET {column} = ? WHERE {condition}",  # noqa: S608 - our own names
            (new.seal(old.unseal(sealed, place), place), *row),
        )


def _place(table: str, row: Sequence[Any], column: str) -> str:
    """As in `rows.py`."""
    names = (name.hex() if isinstance(name, bytes) else str(name) for name in row)
    return "/".join((table, *names, column.removesuffix(_SUFFIX)))
