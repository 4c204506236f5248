"""The hand-over of due pushes to the `deliver` job, and its outcomes (`delivery_engine: spark`).

Theory of operation. Each due push is a line in a segment, which is published after some milliseconds. The job pushes
the lines and writes the outcomes to a folder inside. Nothing here has to survive a crash, because the store knows what
is pending: a starting router clears the folder and hands everything over again. Outcomes of forgotten lines are
therefore ignored, and segments are not synced. At most `MOST_GIVEN` lines wait for an outcome.

If the oldest line has waited longer than the patience, the job is late or gone. Then all lines are withdrawn: their
segments are deleted, and the lanes push by themselves. Meanwhile the folder holds one probe, a line that the job
answers without a push. An answer within the patience means that the job is back. A push that the job had already read
may be made twice, with the same id; its outcome is counted when it comes.
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
from typing import Final, NamedTuple, TypeAlias

from tocsin.crypto.boxes import BoxKey
from tocsin.errors import ConfigError, DecodeError
from tocsin.events.event_log import HANDED_OVER, OUTCOMES, SEGMENTS, SegmentWriter
from tocsin.events.private_files import make_private_once
from tocsin.events.pseudonyms import keys_folder
from tocsin.ntf_router.delivery.handover_lines import (
    Returned,
    decode_returned,
    handover_line,
    probe_line,
    probe_number,
)
from tocsin.ntf_router.settings.settings import DeliveryEngine, DeliverySettings
from tocsin.ntf_router.store.records import DuePush
from tocsin.operate.randomness import Randomness, SystemRandomness
from tocsin.push.provider import Accepted, PushOutcome, RetryLater, RetryScope

MOST_GIVEN: Final = 32_768
"""Lines without an outcome: three seconds' worth at 10,000 a second. While the job is away, the folder stops
growing."""
PUBLISH_SECONDS: Final = 0.05
LOOK_SECONDS: Final = 0.02
Answered: TypeAlias = Callable[[PushOutcome, int, bool], None]
"""Takes the outcome, the number of pending notifications it covers, and whether others had no room in the push."""
TakenBack: TypeAlias = Callable[[], None]

logger = logging.getLogger(__name__)


class _Given(NamedTuple):
    at: float
    answered: Answered
    taken_back: TakenBack


class HandOver:
    """The router's side of the hand-over folder. Only opening it raises OSError."""

    def __init__(
        self,
        folder: Path,
        key: BoxKey,
        randomness: Randomness,
        now: Callable[[], float] = time.time,
        *,
        patience: float = DeliverySettings().patience,
    ) -> None:
        """`patience`: seconds after which a line without an outcome means that the job is away."""
        self._folder = folder
        self._patience = patience
        self.away = False
        """The job is late or gone: lanes must push by themselves."""
        self.pushed_twice = 0
        """Lines that were withdrawn, and that the job had pushed all the same."""
        self._probe: tuple[str, float] | None = None
        """The number of the probe in the folder, and when it was published."""
        self._withdrawn: set[str] = set()
        """Numbers of the lines that were withdrawn last."""
        self._outcomes = folder / OUTCOMES
        self._key = key
        self._randomness = randomness
        self._segments = SegmentWriter(folder, HANDED_OVER, now)
        self._outcomes.mkdir(mode=0o700, exist_ok=True)
        for path in (*folder.glob(SEGMENTS), *self._outcomes.iterdir()):
            path.unlink(missing_ok=True)
        self._life = secrets.token_hex(4)
        """Distinguishes our lines from those of an earlier process."""
        self._numbers = 0
        self._lines: list[bytes] = []
        self._given: dict[str, _Given] = {}
        """Lines without an outcome, oldest first."""
        self._now = now
        self._published_at = 0.0
        self._has_room: list[Callable[[], None]] = []

    @property
    def room(self) -> int:
        """The number of due pushes that still fit."""
        return max(0, MOST_GIVEN - len(self._given))

    @property
    def waiting(self) -> int:
        """The number of due pushes without an outcome."""
        return len(self._given)

    @property
    def oldest_seconds(self) -> float:
        """The age of the oldest due push without an outcome. It grows while the job is away."""
        return self._now() - next(iter(self._given.values())).at if self._given else 0.0

    def when_room(self, call: Callable[[], None]) -> None:
        """Call `call` whenever there is room again."""
        self._has_room.append(call)

    def give(self, due: DuePush, ttl: float, answered: Answered, taken_back: TakenBack) -> None:
        """Hand a due push over. `answered` gets the job's answer, or `RetryLater` if the line could not be written.

        `taken_back` is called instead if the push is withdrawn, because the job is away.
        """
        if self.away:
            taken_back()
            return
        self._numbers += 1
        number = f"{self._life}-{self._numbers}"
        new_id = self._randomness.new_id
        self._lines.append(handover_line(number, due, self._key, new_id(), ttl, new_id()))
        self._given[number] = _Given(self._now(), answered, taken_back)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._lines and loop.time() - self._published_at >= PUBLISH_SECONDS:
                self._published_at = loop.time()
                self.publish()
            if self._given or self._probe:
                self.take_outcomes()
            self.watch()

    def watch(self) -> None:
        """Notice that the job is away, and ask whether it is back."""
        if self.away:
            if self._probe is None or self._now() - self._probe[1] > self._patience:
                self._publish_probe()
        elif self.oldest_seconds > self._patience:
            self._take_back()

    def _take_back(self) -> None:
        logger.warning(
            "the deliver job has not answered for %.0f s: pushing %d tokens from here until it is back",
            self.oldest_seconds,
            len(self._given),
        )
        self.away = True
        given, self._given, self._lines = self._given, {}, []
        self._withdrawn = set(given)
        self._publish_probe()
        for each in given.values():
            each.taken_back()
        for call in self._has_room:
            call()

    def _publish_probe(self) -> None:
        """Replace everything in the folder by one probe. An unanswered one may have been lost with the job."""
        for path in self._folder.glob(SEGMENTS):
            path.unlink(missing_ok=True)
        self._numbers += 1
        number = probe_number(f"{self._life}-{self._numbers}")
        self._probe = number, self._now()
        try:
            self._segments.append(probe_line(number))
        except OSError as error:
            logger.error("could not look for the deliver job: %s", error.strerror)
            return
        self._segments.detach()(synced=False)

    def _hand_back(self) -> None:
        logger.info("the deliver job is back: handing notifications over again")
        self.away, self._probe = False, None
        for call in self._has_room:
            call()

    def publish(self) -> None:
        """Make the lines visible to the job."""
        lines, self._lines = self._lines, []
        try:
            self._segments.append(b"".join(lines))
        except OSError as error:
            logger.error("could not hand over notifications, trying again: %s", error.strerror)
            for line in lines:
                number = line[len(b'{"id":"') :].partition(b'"')[0].decode()
                self._given.pop(number).answered(RetryLater("handover", RetryScope.PROVIDER), 0, False)
            return
        self._segments.detach()(synced=False)

    def take_outcomes(self) -> None:
        """Read the outcomes that the job published since the last call."""
        was_full = not self.room
        for path in sorted(self._outcomes.glob(f"{OUTCOMES}-*")):
            try:
                lines = path.read_bytes().splitlines()
            except OSError as error:
                logger.error("could not read outcomes of the deliver job: %s", error.strerror)
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
            logger.error("could not decode an outcome of the deliver job: %s", error)
            return
        if (given := self._given.pop(answer.id, None)) is not None:
            given.answered(_outcome(answer), answer.taken, answer.more)
        elif self._probe is not None and answer.id == self._probe[0]:
            self._hand_back()
        elif answer.id in self._withdrawn:
            self._withdrawn.remove(answer.id)
            self.pushed_twice += isinstance(_outcome(answer), Accepted)


def _outcome(answer: Returned) -> PushOutcome:
    try:
        return answer.push_outcome()
    except DecodeError as error:
        logger.error("the deliver job returned an unknown outcome, pushing again: %s", error)
        return RetryLater("unreadable", RetryScope.TOKEN)


KEY_BYTES: Final = 32
KEY_FILE: Final = "handover.key"


def handover_key(folder: Path) -> BoxKey:
    """Return the key, which the first router creates in one step. Raises OSError or ConfigError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_private_once(folder / KEY_FILE, os.urandom(KEY_BYTES))
    return read_handover_key(folder)


def read_handover_key(folder: Path) -> BoxKey:
    """Read the key that the router created at its start. Raises ConfigError if there is none."""
    path = folder / KEY_FILE
    try:
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read the hand-over key {path}: {error.strerror}; start the router first, which creates it"
        ) from error
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{path} is not a hand-over key: it must have {KEY_BYTES} bytes")
    return BoxKey(key)


def opened_handover(settings: DeliverySettings) -> HandOver | None:
    """Open the hand-over, or return None if the router pushes itself. Raises ConfigError if the folder is unusable."""
    if settings.engine is DeliveryEngine.INLINE or settings.handover is None:
        return None
    try:
        key = handover_key(handover_keys(settings.handover, settings.handover_keys))
        opened = HandOver(settings.handover, key, SystemRandomness(), patience=settings.patience)
    except OSError as error:
        raise ConfigError(
            f"cannot use the folder delivery_handover = {settings.handover}: {error.strerror}"
        ) from error
    logger.info("handing notifications over to `tocsin pipeline deliver` in %s", settings.handover)
    return opened


def handover_keys(folder: Path, chosen: Path | None) -> Path:
    """Return the folder of the key. It is outside the hand-over folder, so that a copy of that folder has no key."""
    return keys_folder(folder, chosen)
