"""asyncpg's errors in our words: which may pass, and what may be said of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg

from tocsin.errors import StoreError

_TRANSIENT: Final = (
    OSError,  # refused, reset; TimeoutError too
    asyncpg.PostgresConnectionError,  # class 08
    asyncpg.InterfaceError,  # asyncpg's word for a connection that is closed
    asyncpg.InternalClientError,  # … and for one that the server ended while it was idle
    asyncpg.OperatorInterventionError,  # class 57: the server stops, starts, or an operator ended the session
    asyncpg.TransactionRollbackError,  # class 40: deadlock, serialization
    asyncpg.InsufficientResourcesError,  # class 53: too many connections, disk full
)


class DatabaseUnavailable(StoreError):
    """The database cannot be used now; it may be later."""


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        # asyncpg's errors of configuration and of values. Their texts may have parts of the URL, or a value.
        raise StoreError(f"PostgreSQL cannot be used, is its URL right? {type(error).__name__}") from None
    except _TRANSIENT as error:
        raise DatabaseUnavailable(f"the PostgreSQL database is unavailable: {_describe(error)}") from error
    except asyncpg.PostgresError as error:
        # Without its cause, whose text has the values of columns, which are secrets.
        raise StoreError(f"PostgreSQL refused: {_describe(error)}") from None


def _describe(error: Exception) -> str:
    text = str(error.args[0]) if error.args else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
