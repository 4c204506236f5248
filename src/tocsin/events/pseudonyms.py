"""Keyed hashes in place of identifiers, under keys that change and are erased (PIPELINE: privacy of the event log).

A key lasts for one period (a day). Its file is for its owner (`private_files.file_mode`), and is deleted when it is
older than the retention. From then on it is unknown whom a pseudonym stands for. Routers of one operator that share the
folder make the same pseudonyms, so that the stages of a notification can be joined.
"""

from __future__ import annotations

import binascii
import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tocsin.events.private_files import make_private_once

PERIOD_SECONDS: Final = 86_400
RETRY_SECONDS: Final = 1.0
"""Pause after a key that could not be made."""
KEY_BYTES: Final = 32
PSEUDONYM_BYTES: Final = 16
PSEUDONYM_CHARACTERS: Final = 22
"""The length of a pseudonym in base64, without padding."""
MOST_MADE: Final = 60_000
"""Pseudonyms of tokens that are kept: about 10 MB."""
NOTIFICATION: Final = b"n"
QUEUE: Final = b"q"
TOKEN: Final = b"t"
"""Letters that precede an id in the hash, so that equal ids of different things have different pseudonyms."""
KEY_SUFFIX: Final = ".key"

logger = logging.getLogger(__name__)
_BLOCK_BYTES: Final = 64
"""The block size of SHA-256; keys are shorter."""
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


class PseudonymPeriod:
    """The pseudonyms of one period: HMAC-SHA-256 with its two keyed states prepared once.

    Pseudonyms of tokens are kept for a while, because many queues share a token.
    """

    __slots__ = ("_inner", "_outer", "_tokens", "ends_at", "name")

    def __init__(self, name: str, key: bytes, ends_at: float) -> None:
        self.name = name
        self.ends_at = ends_at
        block = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha256(bytes(each ^ 0x36 for each in block))
        self._outer = hashlib.sha256(bytes(each ^ 0x5C for each in block))
        self._tokens: dict[bytes, bytes] = {}

    def notification(self, notifier_id: bytes, nonce: bytes) -> str:
        """Return the pseudonym of a notification. Both routers know these two values, so theirs are equal."""
        return self.hidden(NOTIFICATION + notifier_id + nonce).decode()

    def queue(self, notifier_id: bytes) -> str:
        return self.queue_text(notifier_id).decode()

    def token(self, token_id: bytes) -> str:
        return self.token_text(token_id).decode()

    # The same as bytes, for code that joins lines from bytes.

    def queue_text(self, notifier_id: bytes) -> bytes:
        return self.hidden(QUEUE + notifier_id)

    def token_text(self, token_id: bytes) -> bytes:
        made = self._tokens.get(token_id)
        if made is None:
            if len(self._tokens) >= MOST_MADE:
                self._tokens.clear()
            made = self._tokens[token_id] = self.hidden(TOKEN + token_id)
        return made

    def hidden(self, named: bytes) -> bytes:
        """Hash a letter and an id (RFC 2104).

        This takes a third of the time of `hmac.digest`, which prepares the key each time.
        """
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(named)
        outer.update(inner.digest())
        text = binascii.b2a_base64(outer.digest()[:PSEUDONYM_BYTES], newline=False)
        return text[:PSEUDONYM_CHARACTERS].translate(_URL_SAFE)


class PseudonymKeys:
    """Keys in a folder. Raises OSError if it cannot be used."""

    def __init__(self, folder: Path, retention_days: int, now: Callable[[], float]) -> None:
        self._folder = folder
        self._retention = retention_days
        self._now = now
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._current: PseudonymPeriod | None = None
        self._failure: OSError | None = None
        self._failed_at = 0.0
        self._earlier: dict[int, PseudonymPeriod | None] = {}

    def at(self, moment: float) -> PseudonymPeriod:
        """Return the period in which something began, so that all its stages have one pseudonym.

        Returns the present period if the key is erased.
        """
        current = self.current()
        if moment >= current.ends_at - PERIOD_SECONDS:
            return current
        day = int(moment // PERIOD_SECONDS)
        if day not in self._earlier:
            self._earlier[day] = self.of_day(day)
        return self._earlier[day] or current

    def current(self) -> PseudonymPeriod:
        """Return the present period. Raises OSError while its key cannot be made or read.

        After a failure the disk is left alone for a moment, because this is called for every event.
        """
        now = self._now()
        # A clock that jumped ahead and back returns to the key of the day, which the other routers use.
        if self._current is None or not 0 < self._current.ends_at - now <= PERIOD_SECONDS:
            if self._failure is not None and 0 <= now - self._failed_at < RETRY_SECONDS:
                raise self._failure
            try:
                self._current = self._open(int(now // PERIOD_SECONDS))
            except OSError as error:
                self._failure, self._failed_at = OSError(error.errno, error.strerror), now
                raise
            self._failure = None
            self._erase_old(int(now // PERIOD_SECONDS))
            self._earlier.clear()
        return self._current

    def of_day(self, day: int) -> PseudonymPeriod | None:
        """Return the period of a day (counted from 1970) if its key still exists.

        Operators trace notifications with it.
        """
        path = self._path(day)
        return self._period(day, path.read_bytes()) if path.exists() else None

    def _open(self, day: int) -> PseudonymPeriod:
        """Return the key of a day, which the first router creates."""
        path = self._path(day)
        make_private_once(path, os.urandom(KEY_BYTES))
        return self._period(day, path.read_bytes())

    def _erase_old(self, today: int) -> None:
        for path in self._folder.glob(f"*{KEY_SUFFIX}"):
            if path.stem.isdigit() and int(path.stem) < today - self._retention:
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:  # the key of today is there, and tomorrow comes another attempt
                    logger.error("the old key %s cannot be erased: %s", path, error.strerror)

    def _path(self, day: int) -> Path:
        return self._folder / f"{day}{KEY_SUFFIX}"

    @staticmethod
    def _period(day: int, key: bytes) -> PseudonymPeriod:
        fingerprint = hashlib.sha256(b"tocsin pseudonym period" + key).hexdigest()[:8]
        return PseudonymPeriod(f"{day}-{fingerprint}", key, float((day + 1) * PERIOD_SECONDS))


def keys_folder(event_log: Path, chosen: Path | None) -> Path:
    """Return the folder of the keys. It is outside the event log, so that a copy of the events has no keys."""
    return chosen or event_log.with_name(f"{event_log.name}-keys")
