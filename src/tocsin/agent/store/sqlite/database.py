"""One SQLite file, its lock, and the thread that reads and writes it.

The connection holds the file's lock as long as it is open (`locking_mode=EXCLUSIVE`), so a second agent cannot open
it, and the system releases the lock when the process dies. A transaction is on disk when it has returned.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar

from tocsin.agent.store.sqlite.migrations import migrate
from tocsin.agent.store.sqlite.vault import SCRYPT_N, Vault, new_vault, open_vault, reseal
from tocsin.errors import StoreError

T = TypeVar("T")

OWNER_ONLY: Final = 0o600

_SETTINGS: Final = (
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA secure_delete = ON",  # overwrites deleted keys
)


@dataclass(frozen=True, slots=True)
class SqliteSession:
    """The database and its vault, for use on the database's thread."""

    database: sqlite3.Connection
    vault: Vault


class SqliteDatabase:
    """Created by `open`. Calls run one after the other on one thread, which several databases may share."""

    def __init__(
        self, session: SqliteSession, executor: Executor, own_executor: ThreadPoolExecutor | None
    ) -> None:
        self._session = session
        self._executor = executor
        self._own_executor = own_executor
        self._closed = False

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        passphrase: str | None = None,
        executor: Executor | None = None,
        scrypt_n: int = SCRYPT_N,
    ) -> Self:
        """Open the file, creating it for its owner alone if necessary. `executor` must have exactly one thread.

        Raises StoreError if the file is in use, is not an agent's, or needs another passphrase.
        """
        own = None if executor is not None else ThreadPoolExecutor(1, thread_name_prefix="agent-store")
        used = executor or own
        assert used is not None
        try:
            session = await asyncio.get_running_loop().run_in_executor(
                used, lambda: _opened(path, passphrase, scrypt_n)
            )
        except BaseException:
            if own is not None:
                own.shutdown(wait=False)
            raise
        return cls(session, used, own)

    async def run(self, work: Callable[[SqliteSession], T]) -> T:
        """Run one transaction. Once begun, it finishes even if the caller is cancelled."""
        if self._closed:
            raise StoreError("the agent's store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._in_transaction, work)

    async def change_passphrase(self, passphrase: str | None, scrypt_n: int) -> None:
        """Seal everything again in one transaction, so after a crash one of the two passphrases opens the file."""
        if self._closed:
            raise StoreError("the agent's store is closed")
        await asyncio.get_running_loop().run_in_executor(
            self._executor, self._change_passphrase, passphrase, scrypt_n
        )

    def _change_passphrase(self, passphrase: str | None, scrypt_n: int) -> None:
        def work(session: SqliteSession) -> Vault:
            vault = new_vault(session.database, passphrase, scrypt_n)
            reseal(session.database, session.vault, vault)
            return vault

        database = self._session.database
        vault = self._in_transaction(work)
        self._session = SqliteSession(database, vault)
        with translated():
            # Leave nothing in the log that was sealed for the former passphrase, or not at all.
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def _in_transaction(self, work: Callable[[SqliteSession], T]) -> T:
        """Run on the database's thread, which alone reads the session: its vault may have changed."""
        database = self._session.database
        with translated():
            database.execute("BEGIN IMMEDIATE")
            try:
                result = work(self._session)
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
        return result

    async def close(self) -> None:
        """Close the file after all earlier calls."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._executor, self._session.database.close)
        if self._own_executor is not None:
            self._own_executor.shutdown(wait=False)


def _opened(path: Path, passphrase: str | None, scrypt_n: int) -> SqliteSession:
    with translated():
        _prepare_file(path)
        # Autocommit: this module begins and ends transactions. Only the executor's thread uses the connection.
        database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            for setting in _SETTINGS:
                database.execute(setting)
            database.execute("BEGIN IMMEDIATE")  # takes the lock and keeps it
            try:
                vault = open_vault(database, passphrase, scrypt_n)
                database.execute("COMMIT")
            except BaseException:
                database.execute("ROLLBACK")
                raise
            migrate(database)
        except BaseException:
            database.close()
            raise
    return SqliteSession(database, vault)


def _prepare_file(path: Path) -> None:
    """Create the file with the right mode, which SQLite copies to its other files (-wal, -shm)."""
    try:
        # Open only a new file: closing a file that this process has locked would release the lock (POSIX).
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY))
    except FileExistsError:
        for existing in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))):
            if existing.exists():
                existing.chmod(OWNER_ONLY)


@contextmanager
def translated() -> Iterator[None]:
    """Translate errors of SQLite and the file system to StoreError, which never contains values of a statement."""
    try:
        yield
    except sqlite3.Error as error:
        # Without the cause: texts of SQLite name columns and constraints, and may one day contain more.
        raise StoreError(_SENTENCES.get(_primary_code(error), f"SQLite refused: {_name(error)}")) from None
    except OSError as error:
        raise StoreError(
            f"the agent's store cannot be opened: {error.strerror or type(error).__name__}"
        ) from None


_SENTENCES: Final = {
    sqlite3.SQLITE_BUSY: "the agent's store is in use by another agent",
    sqlite3.SQLITE_LOCKED: "the agent's store is in use by another agent",
    sqlite3.SQLITE_NOTADB: "the file is not an agent's store",
    sqlite3.SQLITE_CORRUPT: "the agent's store is damaged",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "the agent's store cannot be written",
    sqlite3.SQLITE_CANTOPEN: "the agent's store cannot be opened",
}


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _name(error: sqlite3.Error) -> str:
    return str(getattr(error, "sqlite_errorname", type(error).__name__))
