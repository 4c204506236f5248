"""Statistics of tables, by which PostgreSQL plans its queries.

The database gathers them by itself, but not at once, and not at all where an operator has turned that off. Until then
a table that was filled quickly is read as if it were small, which takes twice the time for each notification.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tocsin.ntf_router.store.postgres.pools import NtfPool, Proxy

FEWEST: Final = 1000
"""Rows, and rows that came, went or changed. A table with fewer is left to the database once it has been analyzed."""
CHANGED_SHARE: Final = 0.2
"""Of its rows: then its statistics are old."""

# The number of rows is -1 as long as a table has never been analyzed (PostgreSQL 14). One that is empty, or nearly so,
# is left alone: plans for no rows would be bad ones as soon as it fills.
_STALE: Final = """
    SELECT format('%I.%I', s.schemaname, s.relname) AS name
    FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
    WHERE s.schemaname = ANY(current_schemas(false)) AND s.relname = ANY($3::text[]) AND (
        c.reltuples < 0 AND s.n_live_tup > 0
        OR s.n_live_tup >= $1 AND s.n_mod_since_analyze >= GREATEST($1, $2::float8 * s.n_live_tup)
    )
    ORDER BY name
"""


async def analyze_stale_tables(pool: NtfPool, tables: Sequence[str]) -> list[str]:
    """Those that need it; their whole names are returned. Raises StoreError.

    A sample of each is read, so that even large tables take moments. One that is being analyzed already is skipped,
    and one that belongs to another role.
    """
    rows = await pool.fetch(_STALE, FEWEST, CHANGED_SHARE, list(tables))
    names = [row["name"] for row in rows]
    if names:
        await pool.command(f"ANALYZE (SKIP_LOCKED) {', '.join(names)}")
    return names


async def analyze_tables(connection: Proxy, tables: Sequence[str]) -> None:
    """Also those that the transaction has just filled."""
    await connection.execute(f"ANALYZE {', '.join(tables)}")
