"""Encryption at rest: reading the secrets in an agent's file requires the passphrase.

A value is sealed for its place (table, column, row): 24 random bytes, then a box whose nonce is a hash of these bytes
and the place. A box that was moved to another row or column does not open there.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tocsin.crypto.boxes import NONCE_BYTES, BoxKey, box_key, seal, unseal
from tocsin.errors import BadBox, StoreError

SALT_BYTES: Final = 16
SCRYPT_N: Final = 2**15
"""Each guess costs 32 MiB and about a tenth of a second. The file stores the number, so it may grow."""
_R: Final = 8
_P: Final = 1

ROW_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "receive_queues": ("connection_id", "number"),
    "send_queues": ("connection_id", "number"),
    "tokens": (),
    "tokens_to_delete": ("token_id",),
    "kept_messages": ("connection_id", "queue_number", "message_id"),
    "endpoint_secrets": ("number",),
}
"""By table, the columns that identify a row in the place for which its values are sealed."""
_SUFFIX: Final = "_sealed"


_CHECKED: Final = b"the passphrase is right"
_PLACE_OF_CHECK: Final = "passphrase/check/1"
_TABLE: Final = """CREATE TABLE IF NOT EXISTS passphrase (
    number INTEGER PRIMARY KEY CHECK (number = 1), salt BLOB NOT NULL, scrypt_n INTEGER NOT NULL,
    check_sealed BLOB NOT NULL
) STRICT"""


@dataclass(frozen=True, slots=True)
class Vault:
    """Seals values if there is a key, and otherwise leaves them as they are."""

    key: BoxKey | None = field(default=None, repr=False)

    def seal(self, value: bytes, place: str) -> bytes:
        if self.key is None:
            return value
        chance = os.urandom(NONCE_BYTES)
        return chance + seal(self.key, _nonce(chance, place), value)

    def unseal(self, sealed: bytes, place: str) -> bytes:
        """Raises StoreError if the value was not sealed for this place."""
        if self.key is None:
            return sealed
        chance, box = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
        try:
            return unseal(self.key, _nonce(chance, place), box)
        except BadBox:
            raise StoreError(
                "the agent's store is damaged (a value cannot be decrypted): restore it from a backup"
            ) from None


def open_vault(database: sqlite3.Connection, passphrase: str | None, scrypt_n: int = SCRYPT_N) -> Vault:
    """Open the vault. A passphrase encrypts a new file. Raises StoreError if an old file needs another or none."""
    is_new = not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone()
    database.execute(_TABLE)
    found = database.execute("SELECT salt, scrypt_n, check_sealed FROM passphrase").fetchone()
    if found is None:
        if passphrase is None:
            return Vault()
        if not is_new:
            raise StoreError("the agent's store is not encrypted: open it without a passphrase")
        return new_vault(database, passphrase, scrypt_n)
    if passphrase is None:
        raise StoreError("the agent's store is encrypted: a passphrase is needed")
    salt, scrypt_n, check = found
    vault = Vault(_derived(passphrase, salt, scrypt_n))
    try:
        vault.unseal(check, _PLACE_OF_CHECK)
    except StoreError:
        raise StoreError("the passphrase of the agent's store is wrong") from None
    return vault


def new_vault(database: sqlite3.Connection, passphrase: str | None, scrypt_n: int) -> Vault:
    """Return a vault for a new passphrase, valid if the caller's transaction succeeds. Sealed values do not change."""
    database.execute("DELETE FROM passphrase")
    if passphrase is None:
        return Vault()
    salt = os.urandom(SALT_BYTES)
    vault = Vault(_derived(passphrase, salt, scrypt_n))
    row = (salt, scrypt_n, vault.seal(_CHECKED, _PLACE_OF_CHECK))
    database.execute("INSERT INTO passphrase VALUES (1, ?, ?, ?)", row)
    return vault


def _derived(passphrase: str, salt: bytes, scrypt_n: int) -> BoxKey:
    memory = 128 * _R * (scrypt_n + _P) + 2**20  # plus a little for OpenSSL itself
    key = hashlib.scrypt(passphrase.encode(), salt=salt, n=scrypt_n, r=_R, p=_P, maxmem=memory, dklen=32)
    return box_key(key)


def _nonce(chance: bytes, place: str) -> bytes:
    return hashlib.blake2b(chance + place.encode(), digest_size=NONCE_BYTES).digest()


def reseal(database: sqlite3.Connection, old: Vault, new: Vault) -> None:
    """Seal everything for another passphrase, or for none, within the caller's transaction. Raises StoreError."""
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
    """Return the place as `rows.py` writes it."""
    names = (name.hex() if isinstance(name, bytes) else str(name) for name in row)
    return "/".join((table, *names, column.removesuffix(_SUFFIX)))
