"""One SQLite file, its lock, and the thread that reads and writes it.

The connection holds the file's lock as long as it is open (`locking_mode=EXCLUSIVE`), so a second agent cannot open
it, and the system releases the lock when the process dies. A transaction is on disk when it has returned.

Damage shows in many ways: SQLite refuses, a text is not UTF-8, a row makes no sense to the code that reads it. All of
it becomes StoreError here. Its text names the file, the reason and the next step, and never contains values of the file
or of a statement.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar

from tocsin.agent.store.sqlite.migrations import migrate, roll_back
from tocsin.agent.store.sqlite.vault import SCRYPT_N, Vault, new_vault, open_vault, reseal
from tocsin.errors import StoreError

T = TypeVar("T")

OWNER_ONLY: Final = 0o600
SHORTEST_DATABASE: Final = 512
_RESTORE: Final = "restore it from a backup, or move it away and register again"
DAMAGED: Final = f"the agent's store is damaged: {_RESTORE}"
NOT_A_STORE: Final = "the file is not an agent's store: give another path"
_IN_USE: Final = "the agent's store is in use by another agent: end that one first"

_SENTENCES: Final = {
    sqlite3.SQLITE_BUSY: _IN_USE,
    sqlite3.SQLITE_LOCKED: _IN_USE,
    sqlite3.SQLITE_NOTADB: NOT_A_STORE,
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_FULL: "the disk is full: make room and try again",
    sqlite3.SQLITE_READONLY: "the agent's store cannot be written: check the owner and mode of file and folder",
    sqlite3.SQLITE_CANTOPEN: "the agent's store cannot be opened: check the owner and mode of file and folder",
    sqlite3.SQLITE_IOERR: "the agent's store cannot be read or written: check the disk",
    sqlite3.SQLITE_CONSTRAINT: "SQLite refused: SQLITE_CONSTRAINT: please report this bug",
}

_SETTINGS: Final = (
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
        self,
        path: Path,
        session: SqliteSession,
        executor: Executor,
        own_executor: ThreadPoolExecutor | None,
    ) -> None:
        self._path = path
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
                used, lambda: translated(path, lambda: _opened(path, passphrase, scrypt_n))
            )
        except BaseException:
            if own is not None:
                own.shutdown(wait=False)
            raise
        return cls(path, session, used, own)

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
        # Leave nothing in the log that was sealed for the former passphrase, or not at all.
        checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)"
        translated(self._path, lambda: database.execute(checkpoint).fetchone())

    async def roll_back(self, keep: str, *, lose_data: bool, dry_run: bool) -> tuple[list[str], list[str]]:
        """Take the tables back to an older version (`migrations.roll_back`). Close the file afterwards."""

        def work() -> tuple[list[str], list[str]]:
            database = self._session.database
            return translated(
                self._path, lambda: roll_back(database, keep, lose_data=lose_data, dry_run=dry_run)
            )

        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _in_transaction(self, work: Callable[[SqliteSession], T]) -> T:
        """Run on the database's thread, which alone reads the session: its vault may have changed."""
        return translated(self._path, lambda: _transaction(self._session, work))

    async def close(self) -> None:
        """Close the file after all earlier calls."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._executor, self._session.database.close)
        if self._own_executor is not None:
            self._own_executor.shutdown(wait=False)


def _transaction(session: SqliteSession, work: Callable[[SqliteSession], T]) -> T:
    database = session.database
    database.execute("BEGIN IMMEDIATE")
    try:
        result = work(session)
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    return result


def _opened(path: Path, passphrase: str | None, scrypt_n: int) -> SqliteSession:
    _prepare_file(path)
    # Autocommit: this module begins and ends transactions. Only the executor's thread uses the connection.
    database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        _check_file(path, database)  # before anything is written
        for setting in _SETTINGS:
            database.execute(setting)
        # Its transaction takes the lock and keeps it.
        opened = _transaction(
            SqliteSession(database, Vault()), lambda _session: open_vault(database, passphrase, scrypt_n)
        )
        migrate(database)
    except BaseException:
        database.close()
        raise
    return SqliteSession(database, opened)


def _check_file(path: Path, database: sqlite3.Connection) -> None:
    """Raise StoreError if the file is too short, or the database of another program."""
    log = path.with_name(path.name + "-wal")
    if not log.exists() or not log.stat().st_size:  # otherwise the log may have the missing pages
        [[pages]], [[size]] = database.execute("PRAGMA page_count"), database.execute("PRAGMA page_size")
        if path.stat().st_size < pages * size:
            raise StoreError(DAMAGED)
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if (
        tables and "migrations" not in tables and tables != {"passphrase"}
    ):  # alone: a first start was interrupted
        raise StoreError(NOT_A_STORE)


def _prepare_file(path: Path) -> None:
    """Create the file with the right mode, which SQLite copies to its other files (-wal, -shm)."""
    try:
        # Open only a new file: closing a file that this process has locked would release the lock (POSIX).
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY))
    except FileExistsError:
        if 0 < path.stat().st_size < SHORTEST_DATABASE:
            raise StoreError(DAMAGED) from None  # SQLite would take it for a new file
        for existing in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))):
            if existing.exists():
                existing.chmod(OWNER_ONLY)


def translated(path: Path, work: Callable[[], T]) -> T:
    """Do the work, and translate every error to StoreError.

    The StoreError has no context: its traceback would keep cursors alive, and with them the lock of a closed file.
    """
    try:
        return work()
    except Exception as error:
        text = _sentence(error)
    raise StoreError(f"{path}: {text}")


def _sentence(error: Exception) -> str:
    match error:
        case StoreError():
            return str(error)
        case sqlite3.Error():
            # Without SQLite's own text, which names columns and constraints, and may one day contain more.
            code = _primary_code(error)
            return _SENTENCES.get(code, f"the agent's store is damaged ({_name(error)}): {_RESTORE}")
        case OSError():
            reason = error.strerror or type(error).__name__
            return f"the agent's store cannot be opened: {reason}: check the path, its owner and its mode"
        case _:  # a row or a file that this agent did not write
            return f"the agent's store is damaged ({type(error).__name__}): {_RESTORE}"


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _name(error: sqlite3.Error) -> str:
    return str(getattr(error, "sqlite_errorname", type(error).__name__))
