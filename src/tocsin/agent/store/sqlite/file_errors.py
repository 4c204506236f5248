"""Errors of an agent's file: each names the file, the reason and the next step.

Damage shows in many ways: SQLite refuses, a text is not UTF-8, a row makes no sense to the code that reads it. All of
it becomes StoreError here. Its text never contains values of the file or of a statement.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from tocsin.errors import StoreError

T = TypeVar("T")

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
