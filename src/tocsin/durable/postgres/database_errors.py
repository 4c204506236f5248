"""Translates asyncpg's errors to store errors: which are transient, and which of their texts are safe to show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

import asyncpg
from asyncpg import Connection, Record
from asyncpg.pool import PoolConnectionProxy

from tocsin.durable.postgres.connecting import OVERRIDE
from tocsin.errors import StoreError, StoreUnavailable

AnyConnection: TypeAlias = "Connection[Record] | PoolConnectionProxy[Record]"
_TRANSIENT: Final = (
    OSError,  # refused, reset; TimeoutError too
    asyncpg.PostgresConnectionError,  # class 08
    asyncpg.InterfaceError,  # asyncpg's error for a closed connection
    asyncpg.InternalClientError,  # asyncpg's error for a connection that the server closed while idle
    asyncpg.OperatorInterventionError,  # class 57: the server stops, starts, or an operator ended the session
    asyncpg.TransactionRollbackError,  # class 40: deadlock, serialization
    asyncpg.InsufficientResourcesError,  # class 53: too many connections, disk full
    asyncpg.PostgresSystemError,  # class 58: its disk fails
    asyncpg.IdleInTransactionSessionTimeoutError,  # 25P03: we stood still within a transaction
    asyncpg.ReadOnlySQLTransactionError,  # 25006: a standby, or a primary that became one
)


class DatabaseUnavailable(StoreUnavailable):
    """The database is unavailable at the moment; a later attempt may succeed."""


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        # asyncpg's errors of configuration and of values. Their texts may contain parts of the URL, or a value.
        raise StoreError(f"PostgreSQL cannot be used ({type(error).__name__}): check its URL") from None
    except _TRANSIENT as error:
        if _is_of_tls(error):
            raise DatabaseUnavailable(
                f"the PostgreSQL database is on another machine, and its TLS cannot be verified: {_describe(error)}; "
                f"{OVERRIDE}"
            ) from error
        raise DatabaseUnavailable(f"the PostgreSQL database is unavailable: {_describe(error)}") from error
    except asyncpg.PostgresError as error:
        # The cause is dropped, because its text contains values of columns, which are secrets.
        raise StoreError(f"PostgreSQL refused a statement: {_describe(error)}") from None


def _is_of_tls(error: Exception) -> bool:
    """asyncpg raises a plain ConnectionError if the server has no TLS, and else an `ssl.SSLError`."""
    return type(error).__module__ == "ssl" or (isinstance(error, ConnectionError) and "SSL" in str(error))


def _describe(error: Exception) -> str:
    text = str(error.args[0]) if error.args else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
