"""Versions of a store's tables: which to undo on the way back, and what that would lose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tocsin.errors import StoreError

ACCEPT_LOSS: Final = "--lose-data"
"""The option with which an operator accepts a loss."""


def to_undo(applied: Sequence[str], keep: str) -> list[str]:
    """Return what to undo so that `keep` is the last migration, newest first. Raises StoreError.

    `keep` may be the number with which a name begins, such as 0003.
    """
    found = [name for name in applied if keep in (name, name.partition("_")[0])]
    if len(found) != 1:
        known = f"name one of {', '.join(applied)}" if applied else "there is no store yet"
        raise StoreError(f"the store has no version {keep!r}: {known}")
    return list(reversed(applied[applied.index(found[0]) + 1 :]))


def refuse_loss(losses: Sequence[str], keep: str) -> None:
    """Raise StoreError if there are any."""
    if losses:
        raise StoreError(
            f"{keep} has no place for {', '.join(losses)}: make a backup, then repeat the command with {ACCEPT_LOSS}, "
            "which deletes them, or stay with this version"
        )
