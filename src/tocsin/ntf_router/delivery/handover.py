"""The hand-over of due notifications to the `deliver` job, and its outcomes (`delivery_engine: spark`).

Theory of operation. Each pending notification, and each verification or periodic push, is a row in a segment, which is
published after some milliseconds on the channel to the job (`channels/`): in a folder, or elsewhere if they share none.
The job pushes, and answers with outcome rows on the same channel. Nothing there has to survive a crash, because the
store knows what is pending: a starting router withdraws everything, begins a new epoch with a row that asks whether the
job works, and pushes by itself until it does. Answers to other epochs are ignored.

A row is known here from the hand-over until its outcome is in the store, so that nothing is handed over twice. At most
`MOST_GIVEN` are. A row that the job repeats by itself rests until then. If the oldest row that does not rest has waited
longer than the patience, the job is late or gone. Then all rows are withdrawn, and the
lanes push by themselves, and a new epoch begins. An answer to its first row within the patience
means that the job is back, and that it has forgotten the rows of the last epoch. A push that it had already read may be
made twice, with the same id; its outcome is counted when it comes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from heapq import heappop, heappush
from typing import Final, NamedTuple, Protocol, TypeAlias

from tocsin.crypto.boxes import BoxKey
from tocsin.crypto.credentials import Credentials
from tocsin.errors import ConfigError, DecodeError
from tocsin.ntf_router.delivery.channels.channel import RouterChannel
from tocsin.ntf_router.delivery.channels.handover_key import environment_key, handover_key, handover_keys
from tocsin.ntf_router.delivery.channels.places import router_channel
from tocsin.ntf_router.delivery.handover_rows import RowKind, RowWriter
from tocsin.ntf_router.delivery.outcome_rows import (
    ACCEPTED_WORD,
    BEGUN_WORD,
    SUPERSEDED_WORD,
    OutcomeRow,
    read_outcome_row,
)
from tocsin.ntf_router.settings.settings import DeliveryEngine, DeliverySettings
from tocsin.ntf_router.store.records import DuePush, PendingNotification, TokenRecord
from tocsin.operate.randomness import Randomness, SystemRandomness
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.provider import PushOutcome, PushRequest, RetryLater, RetryScope

MOST_GIVEN: Final = 32_768
"""Rows without an outcome: three seconds' worth at 10,000 a second. While the job is away, the folder stops growing."""
LOOK_SECONDS: Final = 0.01
"""How often rows are published and outcomes looked for."""
UNREADABLE: Final = RetryLater("unreadable", RetryScope.TOKEN)
UNWRITTEN: Final = RetryLater("handover", RetryScope.PROVIDER)
WITHDRAWN: Final = RetryLater("handover", RetryScope.TOKEN)

logger = logging.getLogger(__name__)


class JobAnswer(NamedTuple):
    """The outcome of a push to one token."""

    token: TokenRecord
    notifications: Sequence[PendingNotification]
    """The notifications that the push carried, oldest first."""
    ids: Sequence[int]
    """Their rows. Release them when the outcome is in the store."""
    outcome: PushOutcome
    attempt: int
    """Failed attempts before."""
    pushed: bool
    """Whether there was an attempt."""
    repeats: bool
    """Whether the job itself repeats the push."""
    seconds: float
    """The time from the hand-over to the answer."""


class TakesAnswers(Protocol):
    """Continues with what the job answers."""

    def job_answered(self, answer: JobAnswer) -> None: ...

    def taken_back(self, token_id: bytes) -> None:
        """Push to the token from here: the job is away."""


ControlAnswered: TypeAlias = Callable[[PushOutcome], None]


class _Given(NamedTuple):
    at: float
    token: TokenRecord
    notification: PendingNotification
    taker: TakesAnswers


class _GivenControl(NamedTuple):
    at: float
    answered: ControlAnswered


class HandOver:
    """The router's side of the hand-over."""

    def __init__(
        self,
        channel: RouterChannel,
        key: BoxKey,
        randomness: Randomness,
        now: Callable[[], float] = time.time,
        *,
        patience: float = DeliverySettings().patience,
    ) -> None:
        """`patience`: seconds after which a row without an outcome means that the job is away."""
        self._channel = channel
        self._patience = patience
        self.away = True
        """The job is not there yet, late or gone: lanes must push by themselves."""
        self.pushed_twice = 0
        """Pushes that were withdrawn, and that the job had made all the same."""
        self._asked: tuple[int, float] | None = None
        """The row that asks whether the job is back, and when it was published."""
        self._rows = RowWriter(key)
        self._randomness = randomness
        self._numbers = 0
        self._given: dict[int, _Given | _GivenControl] = {}
        """Rows that wait for the job, oldest first."""
        self._resting: dict[int, tuple[float, _Given]] = {}
        """Rows whose push the job repeats, and until when they rest."""
        self._rest_ends: list[tuple[float, int]] = []
        """A heap of the ends of all rests, with the rows' numbers. Some of these rows rest no longer."""
        self._storing: dict[int, _Given] = {}
        """Rows that are answered, until their outcome is in the store."""
        self._of_tokens: dict[bytes, dict[bytes, int]] = {}
        """The rows of each token by the nonces of their notifications."""
        self._withdrawn: tuple[str, set[int]] = "", set()
        """The last epoch, and its rows that were withdrawn."""
        self._now = now
        self._has_room: list[Callable[[], None]] = []
        self._epoch = secrets.token_hex(4)
        self._lines: list[tuple[int, bytes]] = []
        self._ask()

    def serving(self) -> AbstractAsyncContextManager[None]:
        """Keep the channel to the job open while the block runs. Raises ConfigError if that is not possible."""
        return self._channel.running()

    @property
    def room(self) -> int:
        """The number of rows that still fit."""
        return max(0, MOST_GIVEN - self.waiting - len(self._storing))

    @property
    def waiting(self) -> int:
        """The number of rows without an outcome."""
        return len(self._given) + len(self._resting)

    @property
    def oldest_seconds(self) -> float:
        """The age of the oldest row that waits for the job. It grows while the job is away."""
        return self._now() - next(iter(self._given.values())).at if self._given else 0.0

    def when_room(self, call: Callable[[], None]) -> None:
        """Call `call` whenever there is room again."""
        self._has_room.append(call)

    def holds(self, token_id: bytes) -> bool:
        """Whether notifications of the token are with the job, or their outcome is not in the store yet."""
        return token_id in self._of_tokens

    def give(self, due: DuePush, attempt: int, ttl: float, taker: TakesAnswers) -> None:
        """Hand over the pending notifications of a token that the job does not have yet.

        `taker` gets the answers. If the job is away, it gets the token back at once.
        """
        token, now = due.token, self._now()
        if self.away:
            taker.taken_back(token.token_id)
            return
        known = self._of_tokens.get(token.token_id, {})
        new = [
            each
            for each in due.notifications
            if isinstance(each, PendingNotification) and each.nonce not in known
        ]
        if not new:
            return
        given = {each.nonce for each in new}
        others = [each for each in due.notifications if each.nonce not in given]
        new_id = self._randomness.new_id
        for each in new:
            self._numbers += 1
            line = self._rows.message(
                self._epoch,
                self._numbers,
                token,
                each,
                others if each is new[-1] else (),
                attempt,
                ttl,
                (new_id(), new_id()),
            )
            self._lines.append((self._numbers, line))
            self._given[self._numbers] = _Given(now, token, each, taker)
            known[each.nonce] = self._numbers
        self._of_tokens[token.token_id] = known

    def give_control(
        self, kind: RowKind, provider: PushProvider, push: PushRequest, answered: ControlAnswered
    ) -> None:
        """Hand over a verification or periodic push. The job tries it once."""
        self._numbers += 1
        box_nonce = self._randomness.new_id()
        line = self._rows.control(self._epoch, self._numbers, kind, provider, push, box_nonce)
        self._lines.append((self._numbers, line))
        self._given[self._numbers] = _GivenControl(self._now(), answered)

    def release(self, ids: Iterable[int]) -> None:
        """Forget rows: their outcome is in the store, or the router does it again."""
        was_full = not self.room
        for number in ids:
            given = self._forget(number)
            if isinstance(given, _Given):
                token_id = given.token.token_id
                rows = self._of_tokens.get(token_id)
                if rows is not None and rows.get(given.notification.nonce) == number:
                    del rows[given.notification.nonce]
                    if not rows:
                        del self._of_tokens[token_id]
        if was_full and self.room:
            self._tell_room()

    def release_token(self, token_id: bytes) -> None:
        """Forget all rows of a token but those whose outcome is not in the store yet."""
        rows = self._of_tokens.get(token_id, {}).values()
        self.release([number for number in rows if number not in self._storing])

    def _forget(self, number: int) -> _Given | _GivenControl | None:
        if (given := self._given.pop(number, None)) is not None:
            return given
        if (rested := self._resting.pop(number, None)) is not None:
            return rested[1]
        return self._storing.pop(number, None)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._lines:
                self.publish()
            if self.waiting or self._asked:
                self.take_outcomes()
            self.watch()

    def watch(self) -> None:
        """Notice that the job is away, and ask whether it is back."""
        now = self._now()
        while self._rest_ends and self._rest_ends[0][0] <= now:
            until, number = heappop(self._rest_ends)
            rested = self._resting.get(number)
            if rested is not None and rested[0] == until:  # otherwise it was answered, or rests longer
                del self._resting[number]
                self._given[number] = rested[1]._replace(at=until)
        if self.away:
            if self._asked is None or now - self._asked[1] > self._patience:
                self._ask()
        elif self.oldest_seconds > self._patience:
            self._take_back()

    def _take_back(self) -> None:
        logger.warning(
            "the deliver job has not answered for %.0f s: pushing %d notifications from here until it is back",
            self.oldest_seconds,
            self.waiting,
        )
        self.away = True
        rows: list[_Given | _GivenControl] = [
            *self._given.values(),
            *(each for _, each in self._resting.values()),
        ]
        self._withdrawn = self._epoch, {*self._given, *self._resting}
        self._given, self._resting, self._rest_ends, self._lines = {}, {}, [], []
        self._of_tokens = {
            each.token.token_id: {} for each in self._storing.values()
        }  # their outcomes are known, and only need to be stored
        for number, stored in self._storing.items():
            self._of_tokens[stored.token.token_id][stored.notification.nonce] = number
        self._epoch = secrets.token_hex(4)
        self._ask()
        tokens = {each.token.token_id: each.taker for each in rows if isinstance(each, _Given)}
        for token_id, taker in tokens.items():
            taker.taken_back(token_id)
        for each in rows:
            if isinstance(each, _GivenControl):
                each.answered(WITHDRAWN)
        self._tell_room()

    def _ask(self) -> None:
        """Replace all rows by one. An unanswered one may have been lost with the job."""
        self._numbers += 1
        self._asked = self._numbers, self._now()
        try:
            self._channel.begin(self._rows.begin(self._epoch, self._numbers))
        except OSError as error:
            logger.error("could not look for the deliver job: %s", error.strerror)

    def _hand_back(self) -> None:
        logger.info("the deliver job is back: handing notifications over again")
        self.away, self._asked = False, None
        self._tell_room()

    def _tell_room(self) -> None:
        for call in self._has_room:
            call()

    def publish(self) -> None:
        """Make the rows visible to the job."""
        lines, self._lines = self._lines, []
        try:
            self._channel.publish([line for _, line in lines])
        except OSError as error:
            logger.error("could not hand over notifications, trying again: %s", error.strerror)
            for number, _ in lines:
                self._answer([number], UNWRITTEN, 0, pushed=False, repeats=False)

    def take_outcomes(self) -> None:
        """Read the outcomes that the job published since the last call."""
        for lines in self._channel.take():
            for line in lines.splitlines():
                try:
                    self._take(read_outcome_row(line))
                except DecodeError as error:
                    logger.error("could not decode an outcome of the deliver job: %s", error)

    def _take(self, answer: OutcomeRow) -> None:
        if answer.epoch != self._epoch:
            epoch, withdrawn = self._withdrawn
            if answer.epoch == epoch and answer.outcome == ACCEPTED_WORD:
                self.pushed_twice += not withdrawn.isdisjoint(answer.ids)
                withdrawn.difference_update(answer.ids)
        elif answer.outcome == BEGUN_WORD:
            if self._asked is not None and self._asked[0] in answer.ids:
                self._hand_back()
        elif answer.outcome == SUPERSEDED_WORD:
            self.release(answer.ids)
        else:
            try:
                outcome = answer.push_outcome
            except DecodeError as error:
                logger.error("the deliver job returned an unknown outcome, pushing again: %s", error)
                outcome, answer = UNREADABLE, OutcomeRow(answer.epoch, answer.ids, answer.outcome)
            repeats = answer.due_in is not None
            self._answer(
                answer.ids, outcome, answer.attempt, answer.pushed, repeats, due_in=answer.due_in or 0.0
            )

    def _answer(
        self,
        ids: Iterable[int],
        outcome: PushOutcome,
        attempt: int,
        pushed: bool,
        repeats: bool,
        *,
        due_in: float = 0.0,
    ) -> None:
        """Tell who handed the rows over. Rows that are unknown or answered were repeated after a crash of the job."""
        answered: list[tuple[int, _Given]] = []
        for number in ids:
            given = self._given.pop(number, None)
            if given is None and (rested := self._resting.pop(number, None)) is not None:
                given = rested[1]
            if isinstance(given, _Given):
                answered.append((number, given))
                if repeats:
                    until = self._now() + due_in
                    self._resting[number] = until, given
                    heappush(self._rest_ends, (until, number))
                else:
                    self._storing[number] = given
            elif given is not None:
                given.answered(outcome)
        if not answered:
            return
        first = answered[0][1]
        first.taker.job_answered(
            JobAnswer(
                first.token,
                [each.notification for _, each in answered],
                [number for number, _ in answered],
                outcome,
                attempt,
                pushed,
                repeats,
                self._now() - first.at,
            )
        )


def opened_handover(settings: DeliverySettings, credentials: Credentials) -> HandOver | None:
    """Open the hand-over, or return None if the router pushes itself. Raises ConfigError if its place is unusable."""
    place = settings.handover or settings.handover_address
    if settings.engine is DeliveryEngine.INLINE or place is None:
        return None
    try:
        if settings.handover is not None:
            key = handover_key(handover_keys(settings.handover, settings.handover_keys))
        else:
            key = (
                environment_key() if settings.handover_keys is None else handover_key(settings.handover_keys)
            )
        channel = router_channel(place, credentials, key)
    except OSError as error:
        raise ConfigError(
            f"cannot use the folder delivery_handover = {settings.handover}: {error.strerror}"
        ) from error
    logger.info("handing notifications over to `tocsin pipeline deliver` at %s", place)
    return HandOver(channel, key, SystemRandomness(), patience=settings.patience)
