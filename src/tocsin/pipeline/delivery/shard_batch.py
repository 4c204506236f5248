"""One batch of one shard: rows and the tokens that wait are merged, pushed side by side, and answered.

The state of a shard holds only tokens in back-off, at most `MOST_WAITING`. Everything else is left to the routers,
whose stores know what is pending: what no longer fits, long delays, and pushes to a provider that is down. So an outage
of a provider neither fills the state nor changes it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Final, NamedTuple

import msgspec

from tocsin.crypto.boxes import BoxKey
from tocsin.ntf_router.delivery.handover_rows import HandedRow, RowKind
from tocsin.ntf_router.delivery.outcome_rows import BEGUN_WORD, NOT_SERVED, TOO_SLOW, OutcomeRow
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.pipeline.delivery.token_pushes import (
    PROVIDERS,
    BatchRules,
    ControlRowPush,
    PushingRow,
    TokenPush,
    WaitingToken,
)
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.provider import Accepted, Provider, PushOutcome, RetryLater, RetryScope

MOST_WAITING: Final = 1_000
"""Tokens in back-off of one shard: about a megabyte, which Spark writes whenever it changes."""
AT_ONCE: Final = 64
"""Pushes between two turns of the event loop, in which providers' answers are read."""
MANY_FAILURES: Final = 32
"""After this many failures of a provider in a row, the rest of a batch is given back."""
CONTROL_SHARE: Final = 4
"""Control pushes get one of this many places while message pushes wait."""
NO_ROOM: Final = RetryLater("no_room", RetryScope.PROVIDER)


class RouterRow(NamedTuple):
    router: str
    segment: int
    row: HandedRow


class ShardBatch:
    """Merges, pushes and answers. It knows nothing of Spark."""

    def __init__(
        self, state: bytes, keys: Mapping[str, BoxKey], settings: DeliverySettings, now: float
    ) -> None:
        """`state` is that of the last batch, `keys` are those of the routers."""
        self._state = state
        self._keys = keys
        self._now = now
        self._rules = BatchRules(settings, now, self._may_rest, self._tell)
        self.answers: list[tuple[str, OutcomeRow]] = []
        """Pairs of router and answer."""
        self._tokens: dict[tuple[str, str], TokenPush] = {}
        self._controls: list[ControlRowPush] = []
        for each in _STATES.decode(state) if state else ():
            if each.router in keys:  # another one is no longer served
                self._tokens[each.router, each.token] = TokenPush(
                    each.router, each.token, keys[each.router], self._rules, each
                )
        self._resting = sum(token.due_at > now for token in self._tokens.values())

    @property
    def state(self) -> bytes:
        """The state for the next batch: the same bytes if nothing has changed."""
        waiting = [token.waiting for token in self._tokens.values() if token]
        return _STATE.encode(waiting) if waiting else b""

    @property
    def changed(self) -> bool:
        return self.state != self._state

    @property
    def due_at(self) -> float | None:
        """When the next token is to be pushed again."""
        return min((token.due_at for token in self._tokens.values() if token), default=None)

    @property
    def waiting(self) -> int:
        return sum(map(bool, self._tokens.values()))

    def take(self, rows: Iterable[RouterRow]) -> None:
        """Take the rows of the batch, in any order."""
        ordered = sorted(rows, key=lambda each: (each.segment, each.row.id))
        begun = {each.router: each.row.epoch for each in ordered if each.row.kind == RowKind.BEGIN}
        for (router, name), token in list(self._tokens.items()):
            if router in begun and token.epoch != begun[router]:
                del self._tokens[router, name]
        for router, _, row in ordered:
            if router not in self._keys or row.epoch != begun.get(router, row.epoch):
                continue
            if row.kind == RowKind.BEGIN:
                self._tell(router, OutcomeRow(row.epoch, (row.id,), BEGUN_WORD, pushed=False))
            elif row.kind == RowKind.MESSAGE:
                self._token(router, row.token).add(row)
            elif row.kind in (RowKind.VERIFICATION, RowKind.PERIODIC):
                self._controls.append(ControlRowPush(router, row, self._keys[router], self._rules))

    async def push(self, providers: Mapping[PushProvider, Provider], patience: float) -> None:
        """Push what is due. Pushes without an answer after `patience` seconds are tried again."""
        by_provider: dict[str, tuple[list[PushingRow], list[PushingRow]]] = {}
        for token in self._tokens.values():
            if not token:
                continue
            if token.due_at <= self._now:
                by_provider.setdefault(token.provider, ([], []))[0].append(token)
            else:
                token.tell_new()
        for control in self._controls:
            by_provider.setdefault(control.provider, ([], []))[1].append(control)
        queues = []
        for name, (messages, controls) in by_provider.items():
            known = PROVIDERS.get(name)
            provider = None if known is None else providers.get(known)
            if provider is None:
                for each in (*messages, *controls):
                    each.given_back(NOT_SERVED)
            else:
                queues.append(_ProviderQueue(provider, _mixed(messages, controls)))
        try:
            async with asyncio.timeout(patience):
                await asyncio.gather(*(queue.run() for queue in queues))
        except TimeoutError:
            for queue in queues:
                queue.give_up()

    def _token(self, router: str, name: str) -> TokenPush:
        known = self._tokens.get((router, name))
        if known is None:
            known = self._tokens[router, name] = TokenPush(router, name, self._keys[router], self._rules)
        return known

    def _may_rest(self) -> bool:
        self._resting += 1
        return self._resting <= MOST_WAITING

    def _tell(self, router: str, answer: OutcomeRow) -> None:
        self.answers.append((router, answer))


def _mixed(messages: Sequence[PushingRow], controls: Sequence[PushingRow]) -> list[PushingRow]:
    """Messages and control pushes in turn, by their shares."""
    if not controls:
        return list(messages)
    share = CONTROL_SHARE - 1
    turns = zip_longest([messages[at : at + share] for at in range(0, len(messages), share)], controls)
    return [
        each for some, control in turns for each in (*(some or ()), *(() if control is None else (control,)))
    ]


class _ProviderQueue:
    """The pushes of a batch to one provider, so that another that is slow does not hold them up."""

    def __init__(self, provider: Provider, pushes: Iterable[PushingRow]) -> None:
        self._provider = provider
        self._queue = deque(pushes)
        self._in_flight: set[PushingRow] = set()
        self._failures = 0
        """Failures of the provider since it accepted a push."""
        self._paused: RetryLater | None = None
        self._changed = asyncio.Event()

    async def run(self) -> None:
        submitted = 0
        while self._queue or self._in_flight:
            while self._queue:
                if self._paused is None and self._provider.room <= 0:
                    await self._provider.wait_for_room()
                push = self._queue.popleft()
                if self._paused is not None:
                    push.given_back(self._paused)
                    continue
                if (request := push.request()) is None:
                    continue
                self._in_flight.add(push)
                self._provider.submit(request, partial(self._answered, push))
                submitted += 1
                if submitted % AT_ONCE == 0:
                    await asyncio.sleep(0)
            self._changed.clear()
            if self._in_flight:
                await self._changed.wait()

    def give_up(self) -> None:
        """The time is over."""
        in_flight, self._in_flight = self._in_flight, set()
        for push in in_flight:
            push.unanswered(TOO_SLOW)
        for push in self._queue:
            push.given_back(NO_ROOM)
        self._queue.clear()

    def _answered(self, push: PushingRow, outcome: PushOutcome) -> None:
        if push not in self._in_flight:
            return  # too late
        self._in_flight.discard(push)
        again = push.answered(outcome)
        if isinstance(outcome, RetryLater) and outcome.scope is RetryScope.PROVIDER:
            self._failures += 1
            if not again or self._failures >= MANY_FAILURES:
                self._paused = outcome
        elif isinstance(outcome, Accepted):
            self._failures = 0
        if again:
            self._queue.append(push)
        self._changed.set()


_STATE: Final = msgspec.msgpack.Encoder()
_STATES: Final = msgspec.msgpack.Decoder(list[WaitingToken])
