"""`tocsin pipeline tables`: the catalog of tables, without Spark."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from tocsin.errors import ConfigError
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import SEGMENTS_TABLE, TABLES, TableSpec
from tocsin.pipeline.schemas import meanings
from tocsin.pipeline.update.retention import kept_days

EVERY: Final = (*TABLES, SEGMENTS_TABLE)


def run_tables(lake: Lake, name: str | None, *, as_json: bool) -> int:
    """Lists all tables, or the columns of one. Raises ConfigError for a table that does not exist."""
    known = {table.name: table for table in EVERY}
    if name is not None and name not in known:
        raise ConfigError(f"there is no table {name}: choose one of {', '.join(known)}")
    chosen = EVERY if name is None else (known[name],)
    kept = kept_days(lake)
    entries = [entry(lake, table, kept.get(table.name)) for table in chosen]
    if as_json:
        json.dump(entries, sys.stdout)
        sys.stdout.write("\n")
        return 0
    console = Console()
    console.print(_list(entries))
    if name is None:
        console.print(_meanings(entries))
        console.print("Columns of one: tocsin pipeline tables NAME", highlight=False)
    else:
        console.print(entries[0]["meaning"], highlight=False)
        console.print(_columns(entries[0]))
    return 0


def entry(lake: Lake, table: TableSpec, days_kept: int | None) -> dict[str, Any]:
    """`days_kept`: None if rows are kept as long as what they are about."""
    snapshot = lake.table(table).snapshot()
    days = sorted({each[0] for each in snapshot.partitions})
    return {
        "table": table.name,
        "meaning": meanings.TABLES[table.name],
        "rows": snapshot.rows,
        "files": len(snapshot.files),
        "days": len(days),
        "first_day": days[0] if days else None,
        "last_day": days[-1] if days else None,
        "days_kept": days_kept,
        "partitioned_by": list(table.partitioned_by),
        "columns": [
            {
                "column": field.name,
                "type": field.dataType.simpleString(),
                "meaning": meanings.meaning(table.name, field.name),
            }
            for field in table.schema.fields
        ],
    }


def _list(entries: list[dict[str, Any]]) -> Table:
    """Names, days and numbers are never cut, and fit into 80 columns."""
    shown = Table(box=SIMPLE)
    for heading in ("table", "rows", "files", "from", "to", "kept"):
        shown.add_column(heading, no_wrap=True, justify="right" if heading in ("rows", "files") else "left")
    for each in entries:
        shown.add_row(
            each["table"],
            f"{each['rows']:,}",
            f"{each['files']:,}",
            each["first_day"] or "–",
            each["last_day"] or "–",
            "with its segment" if each["days_kept"] is None else f"{each['days_kept']} days",
        )
    return shown


def _meanings(entries: list[dict[str, Any]]) -> Table:
    shown = Table("table", "a row is", box=SIMPLE)
    for each in entries:
        shown.add_row(each["table"], each["meaning"])
    return shown


def _columns(found: dict[str, Any]) -> Table:
    shown = Table("column", "type", "meaning")
    for each in found["columns"]:
        shown.add_row(each["column"], each["type"], each["meaning"])
    return shown
