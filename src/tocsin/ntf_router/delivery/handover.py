"""Due pushes for the `deliver` job, and its outcomes: what the router does with `delivery_engine: spark`.

Theory of operation. Each due push is a line in a segment that appears after some milliseconds; the job pushes what the
segments hold and puts the outcomes into a folder inside. Nothing here has to survive: what is pending is in the store,
so a router that starts clears the folder and hands everything over again. Hence the outcome of a line that is not known
any more is ignored, segments are not synced, and there are never more lines than `MOST_GIVEN` without an outcome.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from tocsin.crypto.boxes import BoxKey
from tocsin.errors import ConfigError, DecodeError
from tocsin.events.event_log import HANDED_OVER, OUTCOMES, SEGMENTS, SegmentWriter
from tocsin.events.private_files import make_private_once
from tocsin.events.pseudonyms import keys_folder
from tocsin.ntf_router.delivery.handover_lines import Returned, decode_returned, handover_line
from tocsin.ntf_router.settings.settings import DeliveryEngine, DeliverySettings
from tocsin.ntf_router.store.records import DuePush
from tocsin.operate.randomness import Randomness, SystemRandomness
from tocsin.push.provider import PushOutcome, RetryLater, RetryScope

MOST_GIVEN: Final = 32_768
"""At 10,000 a second more than three seconds; while the job is away the folder grows no further."""
PUBLISH_SECONDS: Final = 0.05
LOOK_SECONDS: Final = 0.02
Answered: TypeAlias = Callable[[PushOutcome, int, bool], None]
"""Outcome, how many of the pending notifications it is about, whether others had no room."""

logger = logging.getLogger(__name__)


class HandOver:
    """One router's side of the folder. Raises OSError when it cannot be opened, never afterwards."""

    def __init__(
        self, folder: Path, key: BoxKey, randomness: Randomness, now: Callable[[], float] = time.time
    ) -> None:
        self._outcomes = folder / OUTCOMES
        self._key = key
        self._randomness = randomness
        self._segments = SegmentWriter(folder, HANDED_OVER, now)
        self._outcomes.mkdir(mode=0o700, exist_ok=True)
        for path in (*folder.glob(SEGMENTS), *self._outcomes.iterdir()):
            path.unlink(missing_ok=True)
        self._life = secrets.token_hex(4)
        """So that outcomes for an earlier process are not taken for ours."""
        self._numbers = 0
        self._lines: list[bytes] = []
        self._given: dict[str, tuple[float, Answered]] = {}
        """With when, oldest first."""
        self._now = now
        self._published_at = 0.0
        self._has_room: list[Callable[[], None]] = []

    @property
    def room(self) -> int:
        """How many more due pushes it takes."""
        return max(0, MOST_GIVEN - len(self._given))

    @property
    def waiting(self) -> int:
        """Due pushes without an outcome."""
        return len(self._given)

    @property
    def oldest_seconds(self) -> float:
        """How long the oldest of them has waited: a job that is away shows in it."""
        return self._now() - next(iter(self._given.values()))[0] if self._given else 0.0

    def when_room(self, call: Callable[[], None]) -> None:
        """`call` is called whenever there is room again."""
        self._has_room.append(call)

    def give(self, due: DuePush, ttl: float, answered: Answered) -> None:
        """`answered` is called once: with the job's answer, or with `RetryLater` if it could not be written."""
        self._numbers += 1
        number = f"{self._life}-{self._numbers}"
        new_id = self._randomness.new_id
        self._lines.append(handover_line(number, due, self._key, new_id(), ttl, new_id()))
        self._given[number] = self._now(), answered

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._lines and loop.time() - self._published_at >= PUBLISH_SECONDS:
                self._published_at = loop.time()
                self.publish()
            if self._given:
                self.take_outcomes()

    def publish(self) -> None:
        """What was given becomes visible to the job."""
        lines, self._lines = self._lines, []
        try:
            self._segments.append(b"".join(lines))
        except OSError as error:
            logger.error("notifications cannot be handed over, trying again: %s", error.strerror)
            for line in lines:
                number = line[len(b'{"id":"') :].partition(b'"')[0].decode()
                self._given.pop(number)[1](RetryLater("handover", RetryScope.PROVIDER), 0, False)
            return
        self._segments.detach()(synced=False)

    def take_outcomes(self) -> None:
        """Those that the job has published since the last look."""
        was_full = not self.room
        for path in sorted(self._outcomes.glob(f"{OUTCOMES}-*")):
            try:
                lines = path.read_bytes().splitlines()
            except OSError as error:
                logger.error("outcomes cannot be read: %s", error.strerror)
                continue
            for line in lines:
                self._take(line)
            with suppress(OSError):
                path.unlink()
        if was_full and self.room:
            for call in self._has_room:
                call()

    def _take(self, line: bytes) -> None:
        try:
            answer = decode_returned(line)
        except DecodeError as error:
            logger.error("an outcome of the deliver job cannot be read: %s", error)
            return
        if (given := self._given.pop(answer.id, None)) is not None:
            given[1](_outcome(answer), answer.taken, answer.more)


def _outcome(answer: Returned) -> PushOutcome:
    try:
        return answer.push_outcome()
    except DecodeError as error:
        logger.error("an outcome of the deliver job is not understood, pushing again: %s", error)
        return RetryLater("unreadable", RetryScope.TOKEN)


KEY_BYTES: Final = 32
KEY_FILE: Final = "handover.key"


def handover_key(folder: Path) -> BoxKey:
    """Made by whichever router is first; none sees half of one. Raises OSError or ConfigError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_private_once(folder / KEY_FILE, os.urandom(KEY_BYTES))
    return read_handover_key(folder)


def read_handover_key(folder: Path) -> BoxKey:
    """Raises ConfigError if there is none yet: the router makes it at its start."""
    path = folder / KEY_FILE
    try:
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the key of hand-overs cannot be read: {path}: {error.strerror}") from error
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{path} holds no key of hand-overs")
    return BoxKey(key)


def opened_handover(settings: DeliverySettings) -> HandOver | None:
    """None if the router pushes by itself. Raises ConfigError if the folder cannot be used."""
    if settings.engine is DeliveryEngine.INLINE or settings.handover is None:
        return None
    try:
        key = handover_key(handover_keys(settings.handover, settings.handover_keys))
        opened = HandOver(settings.handover, key, SystemRandomness())
    except OSError as error:
        raise ConfigError(
            f"delivery_handover {settings.handover} cannot be used: {error.strerror}"
        ) from error
    logger.info("notifications are handed over to `tocsin pipeline deliver` in %s", settings.handover)
    return opened


def handover_keys(folder: Path, chosen: Path | None) -> Path:
    """As with the event log: whoever copies the folder must not copy its key."""
    return keys_folder(folder, chosen)
