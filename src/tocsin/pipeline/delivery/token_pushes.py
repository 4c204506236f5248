"""Pushes of one batch: what comes next for a token or a control push, and what its outcome means.

The functions that choose and encrypt are those of the inline engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

import msgspec

from tocsin.crypto.boxes import NONCE_BYTES, BoxKey
from tocsin.errors import BadBox, DecodeError
from tocsin.ntf_router.delivery.handover_rows import (
    HandedMessage,
    HandedRow,
    opened_message,
    opened_request,
    queue_text,
)
from tocsin.ntf_router.delivery.outcome_rows import (
    SUPERSEDED_WORD,
    TOO_LARGE,
    OutcomeRow,
    outcome_row,
)
from tocsin.ntf_router.delivery.pushes import (
    MOST_NOTIFICATIONS,
    NotificationPush,
    choose_notifications,
    message_request,
)
from tocsin.ntf_router.delivery.retry_schedule import retry_delay
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.ntf_router.store.records import LastNotification, PendingNotification, TokenRecord
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.push.provider import PushOutcome, PushRefused, PushRequest, RetryLater, RetryScope, TokenInvalid

MOST_REST: Final = 30.0
"""Seconds that a push may rest with the job. A longer delay is left to the router, which may learn until then that the
token was deleted."""
LATE_ANSWERS: Final = 2
"""How often a push that was not answered in time is repeated from here. Then the router makes the next attempt."""
PROVIDERS: Final = {each.text: each for each in PushProvider}
_WEB_PUSH: Final = PushProvider.WEBPUSH.text
UNREADABLE: Final = RetryLater("unreadable", RetryScope.TOKEN)
BACKING_OFF: Final = RetryLater("backing_off", RetryScope.TOKEN)
_ACTIVE: Final = TokenStatus(TokenState.ACTIVE)
_NO_QUEUE: Final = NotifierQueue(RouterLocation((), "", b""), b"")
"""Stands for the queue. The choice of notifications for a push does not need it, so it is not handed over."""


class BatchRules(NamedTuple):
    """The rules that all pushes of a batch share."""

    settings: DeliverySettings
    now: float
    may_rest: Callable[[], bool]
    """Whether the shard has room for another token that rests."""
    tell: Callable[[str, OutcomeRow], None]
    """Takes the router and an answer."""


class PushingRow(Protocol):
    """Something to push until it has its outcome."""

    @property
    def provider(self) -> str: ...

    def request(self) -> PushRequest | None:
        """Return the next push, or None if there is none after all."""

    def answered(self, outcome: PushOutcome) -> bool:
        """Take the outcome. Returns whether another push follows at once."""

    def unanswered(self, outcome: RetryLater) -> None:
        """The batch ends before the answer: push again in the next batch, or leave it to the router."""

    def given_back(self, outcome: RetryLater) -> None:
        """Leave it to the router, without an attempt."""


class WaitingToken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A token in back-off, in the state of its shard. Contents are sealed."""

    router: str
    token: str
    attempt: int
    due_at: float
    rows: tuple[HandedRow, ...]
    done: tuple[HandedRow, ...]


class TokenPush:
    """The notifications of one token."""

    def __init__(
        self,
        router: str,
        token: str,
        key: BoxKey | None,
        rules: BatchRules,
        waiting: WaitingToken | None = None,
    ) -> None:
        """Without its `key`, a row cannot be read."""
        self.router = router
        self.token = token
        self.provider = ""
        self.due_at = 0.0
        """When it is to be pushed again. In the past if it is due."""
        self._key = key
        self._rules = rules
        self._attempt = 0
        self._rows: dict[str, HandedRow] = {}
        """The newest notification of each queue."""
        self._done: list[HandedRow] = []
        """Rows that were pushed: they may fill the remaining room of the next push."""
        self._opened: dict[int, HandedMessage] = {}
        self._new: list[HandedRow] = []
        """The rows that came in this batch."""
        self._covered: list[HandedRow] = []
        """The rows of the push that is under way."""
        self._registered_at = 0.0
        if waiting is not None:
            for row in waiting.rows:
                self.add(row)
            self._done = list(waiting.done)
            self._attempt, self.due_at = waiting.attempt, waiting.due_at
            self._new.clear()

    def __bool__(self) -> bool:
        """Whether something is to be pushed."""
        return bool(self._rows)

    @property
    def epoch(self) -> str:
        return next(iter(self._rows.values())).epoch

    @property
    def waiting(self) -> WaitingToken:
        rows = tuple(self._rows.values())
        return WaitingToken(self.router, self.token, self._attempt, self.due_at, rows, tuple(self._done))

    def add(self, row: HandedRow) -> None:
        """Take a notification. Of a queue only the newest counts, and one that comes twice counts once."""
        self.provider = row.provider
        self._new.append(row)
        self._attempt = max(self._attempt, row.attempt)
        known = self._rows.get(row.queue)
        if known is None:
            self._rows[row.queue] = row
            return
        newer = (row.received_at, row.id) >= (known.received_at, known.id)
        older = known if newer else row
        if newer:
            self._rows[row.queue] = row
        if known.id != row.id:
            self._rules.tell(self.router, OutcomeRow(older.epoch, (older.id,), SUPERSEDED_WORD, pushed=False))

    def request(self) -> PushRequest | None:
        while self._rows:
            try:
                push = self._next()
            except (BadBox, DecodeError):
                self.given_back(UNREADABLE)
                return None
            self._covered = [self._rows[each.subscription_id.decode()] for each in push.pending]
            if push.chosen:
                return self._request(push)
            # The oldest is larger than a push. It fails, so that the next ones get their turn.
            [oldest] = self._covered = [min(self._rows.values(), key=lambda row: row.received_at)]
            self._tell([oldest], PushRefused(TOO_LARGE), pushed=False)
            self._end_covered()
        return None

    def answered(self, outcome: PushOutcome) -> bool:
        match outcome:
            case RetryLater():
                return self._retry(outcome)
            case TokenInvalid() if outcome.concerns(self._registered_at):
                self._tell(self._covered, outcome)
                self._rows.clear()  # the router invalidates the token, and forgets all of it
                return False
            case _:
                self._tell(self._covered, outcome)
                self._end_covered()
                return bool(self._rows)

    def unanswered(self, outcome: RetryLater) -> None:
        if self.provider == _WEB_PUSH or self._attempt >= LATE_ANSWERS:
            # The router has more patience. Another push from here might again be answered too late, and so without end;
            # and a browser does not recognise a repeated push.
            self._tell(self._covered, outcome)
            self._rows.clear()
        elif self._retry(outcome) and not self._rules.may_rest():
            self.given_back(outcome)

    def tell_new(self) -> None:
        """Tell the router that what came in this batch waits for the next attempt."""
        if self._new:
            self._tell(self._new, BACKING_OFF, due_in=self.due_at - self._rules.now, pushed=False)

    def given_back(self, outcome: RetryLater) -> None:
        self._tell(self._rows.values(), outcome, pushed=False)
        self._rows.clear()

    def _retry(self, outcome: RetryLater) -> bool:
        delay = retry_delay(self._rules.settings, self._attempt, outcome)
        if delay and (
            outcome.scope is RetryScope.PROVIDER or delay > MOST_REST or not self._rules.may_rest()
        ):
            self._tell(self._covered, outcome)
            self._rows.clear()
            return False
        self._tell(self._covered, outcome, due_in=delay)
        self._attempt += 1
        if not delay:
            return True
        self.due_at = self._rules.now + delay
        covered = {row.id for row in self._covered}
        if rest := [row for row in self._rows.values() if row.id not in covered]:
            self._tell(rest, outcome, due_in=delay, pushed=False)
        return False

    def _tell(
        self,
        rows: Iterable[HandedRow],
        outcome: PushOutcome,
        *,
        due_in: float | None = None,
        pushed: bool = True,
    ) -> None:
        ids = [row.id for row in rows]
        answer = outcome_row(self.epoch, ids, outcome, self._attempt, due_in=due_in, pushed=pushed)
        self._rules.tell(self.router, answer)

    def _end_covered(self) -> None:
        for row in self._covered:
            del self._rows[row.queue]
        self._done = [*self._done, *self._covered][-MOST_NOTIFICATIONS:]
        self._attempt = 0

    def _next(self) -> NotificationPush:
        """The push that the inline engine would send."""
        pending = [(row, self._open(row)) for row in self._rows.values()]
        newest = max(self._rows.values(), key=lambda row: row.id)
        others = {
            queue_text(each.text): LastNotification(each.received_at, each.nonce, each.text)
            for each in self._open(newest).others
        }
        others |= {queue_text(each.text): each for each in self._pushed()}
        last: list[LastNotification] = []
        for row, each in pending:
            others.pop(queue_text(each.text), None)
            last.append(
                PendingNotification(row.received_at, each.nonce, each.text, row.queue.encode(), _NO_QUEUE)
            )
        last += others.values()
        last.sort(key=lambda each: each.received_at)
        opened = pending[0][1]
        self._registered_at = opened.registered_at
        provider = PROVIDERS.get(self.provider)
        if provider is None:
            raise DecodeError(
                f"unknown provider {self.provider!r}: the hand-over was written by another version of Tocsin"
            )
        # A push needs only these fields of a token, so only they are handed over.
        device_token = DeviceToken(provider, opened.device_token)
        token = TokenRecord(b"", device_token, _ACTIVE, b"", b"", dh_secret=opened.dh_secret, code=b"")
        push = choose_notifications(token, last, self._attempt)
        assert push is not None
        return push

    def _pushed(self) -> list[LastNotification]:
        opened = [(row, self._open(row)) for row in self._done]
        return [LastNotification(row.received_at, each.nonce, each.text) for row, each in opened]

    def _request(self, push: NotificationPush) -> PushRequest:
        """Make the same bytes again for the same contents, and never encrypt two contents with one nonce."""
        newest = self._open(self._covered[-1])
        nonce = hashlib.blake2b(push.text, digest_size=NONCE_BYTES, key=newest.seed).digest()
        return message_request(push, nonce, newest.ttl)

    def _open(self, row: HandedRow) -> HandedMessage:
        known = self._opened.get(row.id)
        if known is None:
            if self._key is None:
                raise BadBox("a box without a key")
            known = self._opened[row.id] = opened_message(row, self._key)
        return known


class ControlRowPush:
    """A verification or periodic push. It is tried once: its router knows how often and how long to repeat it."""

    def __init__(self, router: str, row: HandedRow, key: BoxKey | None, rules: BatchRules) -> None:
        self.provider = row.provider
        self._router = router
        self._row = row
        self._key = key
        self._rules = rules

    def request(self) -> PushRequest | None:
        if self._key is not None:
            try:
                return opened_request(self._row, self._key)
            except (BadBox, DecodeError):
                pass
        self.given_back(UNREADABLE)
        return None

    def answered(self, outcome: PushOutcome) -> bool:
        self._rules.tell(self._router, outcome_row(self._row.epoch, (self._row.id,), outcome, 0))
        return False

    def unanswered(self, outcome: RetryLater) -> None:
        self.answered(outcome)

    def given_back(self, outcome: RetryLater) -> None:
        self._rules.tell(
            self._router, outcome_row(self._row.epoch, (self._row.id,), outcome, 0, pushed=False)
        )
