"""How routers reach their database: TLS, and which of several servers they take.

A URL may name several servers (`postgresql://user@db1,db2/tocsin`). A router takes the first one that accepts changes,
so a standby is passed over until it is promoted.
"""

from __future__ import annotations

import os
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tocsin.durable.postgres.tls import tls_options
from tocsin.errors import StoreUnavailable

_ASKED: Final = "target_session_attrs"


class OlderDatabase(StoreUnavailable):
    """The database has lost changes that this router had made: it waits for the right one."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the PostgreSQL database is an older copy ({what}): bring the right server back or promote the standby "
            "that has everything; to go on with this copy and lose the rest, restart the router"
        )


def writer_options(url: str) -> dict[str, Any]:
    """Return the arguments of asyncpg's `connect` for somebody who changes the store."""
    options = tls_options(url)
    try:
        parts = urlsplit(url)
        asked = parse_qs(parts.query)
    except ValueError:
        return options  # asyncpg says what is wrong with the URL
    hosts = ",".join(asked.get("host", [parts.netloc]))
    if "," in hosts and _ASKED not in asked and "PGTARGETSESSIONATTRS" not in os.environ:
        options[_ASKED] = "read-write"
    return options
