"""Keyed hashes in place of identifiers, under keys that change and are erased (PIPELINE: privacy of the event log).

A key lasts for one period (a day). It is a file readable by its owner alone, and is deleted when it is older than the
retention: from then on nobody can tell whose events a pseudonym stands for. Routers of one operator that share the
folder make the same pseudonyms, so that the stages of a notification can be joined.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

PERIOD_SECONDS: Final = 86_400
KEY_BYTES: Final = 32
PSEUDONYM_BYTES: Final = 16
MOST_MADE: Final = 30_000
"""About 6 MB."""
KEY_SUFFIX: Final = ".key"


class PseudonymPeriod:
    """One period's hashes. Those made last are kept: a notification's are needed at each of its stages."""

    __slots__ = ("_key", "_made", "ends_at", "name")

    def __init__(self, name: str, key: bytes, ends_at: float) -> None:
        self.name = name
        self.ends_at = ends_at
        self._key = key
        self._made: dict[bytes, str] = {}

    def notification(self, notifier_id: bytes, nonce: bytes) -> str:
        """Both routers know these two, so theirs are equal."""
        return self._hash(b"n" + notifier_id + nonce)

    def queue(self, notifier_id: bytes) -> str:
        return self._hash(b"q" + notifier_id)

    def token(self, token_id: bytes) -> str:
        return self._hash(b"t" + token_id)

    def _hash(self, named: bytes) -> str:
        made = self._made.get(named)
        if made is None:
            digest = hmac.digest(self._key, named, "sha256")[:PSEUDONYM_BYTES]
            made = base64.urlsafe_b64encode(digest)[:22].decode()
            if len(self._made) >= MOST_MADE:
                self._made.clear()
            self._made[named] = made
        return made


class PseudonymKeys:
    """Keys in a folder. Raises OSError if it cannot be used."""

    def __init__(self, folder: Path, retention_days: int, now: Callable[[], float]) -> None:
        self._folder = folder
        self._retention = retention_days
        self._now = now
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._current: PseudonymPeriod | None = None
        self._earlier: dict[int, PseudonymPeriod | None] = {}

    def at(self, moment: float) -> PseudonymPeriod:
        """The period in which something began, so that all of its stages have one pseudonym.

        The present one if its key is erased already.
        """
        current = self.current()
        if moment >= current.ends_at - PERIOD_SECONDS:
            return current
        day = int(moment // PERIOD_SECONDS)
        if day not in self._earlier:
            self._earlier[day] = self.of_day(day)
        return self._earlier[day] or current

    def current(self) -> PseudonymPeriod:
        now = self._now()
        if self._current is None or now >= self._current.ends_at:
            self._current = self._open(int(now // PERIOD_SECONDS))
            self._erase_old(int(now // PERIOD_SECONDS))
            self._earlier.clear()
        return self._current

    def of_day(self, day: int) -> PseudonymPeriod | None:
        """The period of a day since 1970, if its key still exists: for an operator who looks for one notification."""
        path = self._path(day)
        return self._period(day, path.read_bytes()) if path.exists() else None

    def _open(self, day: int) -> PseudonymPeriod:
        """The key of that day, made by whichever router is first: none sees half of one, not even after a crash."""
        path = self._path(day)
        if not path.exists():
            descriptor, draft = tempfile.mkstemp(dir=self._folder, prefix=".new-")  # for its owner only
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(os.urandom(KEY_BYTES))
                    file.flush()
                    os.fsync(file.fileno())
                with suppress(FileExistsError):
                    os.link(draft, path)
            finally:
                os.unlink(draft)
        return self._period(day, path.read_bytes())

    def _erase_old(self, today: int) -> None:
        for path in self._folder.glob(f"*{KEY_SUFFIX}"):
            if path.stem.isdigit() and int(path.stem) < today - self._retention:
                path.unlink(missing_ok=True)

    def _path(self, day: int) -> Path:
        return self._folder / f"{day}{KEY_SUFFIX}"

    @staticmethod
    def _period(day: int, key: bytes) -> PseudonymPeriod:
        fingerprint = hashlib.sha256(b"tocsin pseudonym period" + key).hexdigest()[:8]
        return PseudonymPeriod(f"{day}-{fingerprint}", key, float((day + 1) * PERIOD_SECONDS))


def keys_folder(event_log: Path, chosen: Path | None) -> Path:
    """Not inside the event log: whoever copies events away must not copy the keys with them."""
    return chosen or event_log.with_name(f"{event_log.name}-keys")
