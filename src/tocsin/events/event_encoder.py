"""The encoder of delivery events: one line of the event log for each event of either router.

Theory of operation. All stages of one notification repeat the same facts: pseudonyms, SMP router, provider. The
encoder makes these pieces at the first stage and keeps them until the last one. It keeps the pieces of a queue longer,
and makes the pieces of a moment and of a stage once for all lines of a batch. Nothing is joined before it is written.
The result is byte for byte what msgspec makes of the same `DeliveryEvent`:

    {"id":"  N  .received","stage":"received","at":1,"mono":2  ,"router":"r",…,"notification":"  N  ","queue":…  }
    ─START─ name ──────────────── middle ───────────────────── ──────────── head ───────────── name ── part ── end

The key of the day on which a notification was received hides all of its stages. When a new day begins the encoder
forgets what it kept, because a key may have been erased.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from tocsin.events.delivery_events import SCHEMA_VERSION, Stage
from tocsin.events.pseudonyms import NOTIFICATION, PERIOD_SECONDS, PseudonymKeys, PseudonymPeriod

MOST_KEPT: Final = 30_000
"""Notifications without an outcome, about 10 MB. Beyond this number all are forgotten and made again."""
MOST_QUEUES: Final = 60_000
"""Queues whose piece of the line is kept, about 25 MB. Beyond this number the oldest tenth is forgotten."""
MOST_ROUTES: Final = 10_000
START: Final = b'{"id":"'
END: Final = b"}\n"
"""The end of a line without further fields."""

_encode: Final = msgspec.json.encode

Pieces: TypeAlias = tuple[bytes, bytes, bytes]
"""`name`, `head` and `part` of one notification's lines."""


class EventSubject(msgspec.Struct, frozen=True, gc=False):
    """The notification that an event is about."""

    notifier_id: bytes
    nonce: bytes
    received_at: float
    smp_host: str
    token_id: bytes | None = None
    provider: str = ""

    def __repr__(self) -> str:
        """Leave out the ids."""
        return f"EventSubject({self.smp_host!r})"


class EventEncoder:
    """`first`, `attempt` and `last` make one line each. Batch callers join the pieces themselves."""

    def __init__(self, keys: PseudonymKeys, instance: str) -> None:
        self._keys = keys
        self._instance = _encode(instance)
        self._kept: dict[bytes, Pieces] = {}
        """Pieces of notifications by notifier id and nonce."""
        self.find: Final[Callable[[bytes], Pieces | None]] = self._kept.get
        self.take: Final[Callable[[bytes, None], Pieces | None]] = self._kept.pop
        self._queues: dict[bytes, tuple[bytes, bytes, bytes]] = {}
        """Token id, route and their piece of the line by notifier id, in the present period."""
        self._routes: dict[tuple[str, str], bytes] = {}
        self._at = 0
        self._now = b""
        self._period: PseudonymPeriod | None = None
        self._period_began = 0.0
        self._head = b""
        """The piece that all lines of the present period share."""
        self._changes = 0

    def begin(self) -> None:
        """Start a batch of events that happen now. Call it before the first of their lines."""
        self._at = int(time.time() * 1_000_000)
        self._now = b'%d,"mono":%d' % (self._at, time.monotonic_ns() // 1000)
        period = self._keys.current()
        if period is not self._period:
            self._period = period
            self._period_began = period.ends_at - PERIOD_SECONDS
            self._head = self._head_of(period)
            self._kept.clear()
            self._queues.clear()
        elif len(self._kept) > MOST_KEPT:
            self._kept.clear()

    def middle(self, stage: Stage) -> bytes:
        """The middle piece of a stage. Attempts have their own, because their ids contain a number."""
        kind = _STAGES[stage]
        return b'.%b","stage":"%b","at":%b' % (kind, kind, self._now)

    def attempt_middle(self, number: int) -> bytes:
        return b'.attempted.%d","stage":"attempted","at":%b' % (number, self._now)

    def route(self, smp_host: str, provider: str) -> bytes:
        """The piece for an SMP router and a provider. There are few of them, so all are kept."""
        known = self._routes.get((smp_host, provider))
        if known is None:
            if len(self._routes) >= MOST_ROUTES:
                self._routes.clear()
            known = _encode(smp_host) + (b',"provider":%b' % _encode(provider) if provider else b"")
            self._routes[smp_host, provider] = known
        return known

    def keep(
        self, notifier_id: bytes, nonce: bytes, received_at: float, token_id: bytes, route: bytes
    ) -> Pieces:
        """Make the pieces of a notification. `find` and `take` then find them by notifier id and nonce."""
        key = notifier_id + nonce
        period = self._period
        if period is None or received_at < self._period_began:
            made = self._make(notifier_id, nonce, received_at, token_id, route)
        else:
            name = period.hidden(NOTIFICATION + key)
            known = self._queues.get(notifier_id)
            if known is None or known[0] != token_id or known[1] != route:
                if len(self._queues) >= MOST_QUEUES:
                    self._forget_some_queues()
                known = token_id, route, _queue_part(period, notifier_id, token_id, route)
                self._queues[notifier_id] = known
            made = name, self._head, known[2]
        self._kept[key] = made
        return made

    def first(self, stage: Stage, about: EventSubject, size: int, priority: str = "") -> bytes:
        """Make the line of a stage after which others may come."""
        pieces = self._pieces(about) if about.token_id is None else self._keep(about, about.token_id)
        named = b',"priority":%b' % _encode(priority) if priority else b""
        return _line(pieces, self.middle(stage), named + size_end(size))

    def attempt(self, about: EventSubject, number: int, engine: str = "") -> bytes:
        pieces = self.find(about.notifier_id + about.nonce)
        if pieces is None:
            pieces = self._pieces(about) if about.token_id is None else self._keep(about, about.token_id)
        end = b',"attempt":%d' % number if number else b""
        return _line(pieces, self.attempt_middle(number), end + engine_end(engine))

    def last(
        self, stage: Stage, about: EventSubject, reason: str = "", attempt: int = 0, engine: str = ""
    ) -> bytes:
        """Make the line of a notification's outcome."""
        known = self.take(about.notifier_id + about.nonce, None)
        pieces = self._pieces(about) if known is None else known
        end = b',"reason":%b' % _encode(reason) if reason else b""
        if attempt:
            end += b',"attempt":%d' % attempt
        return _line(pieces, self.middle(stage), end + engine_end(engine))

    def token_change(self, token_id: bytes, provider: str, before: str, after: str, cause: str) -> bytes:
        period = self._keys.current()
        about = b'"token":"%b","provider":%b' % (period.token_text(token_id), _encode(provider))
        return self._change(Stage.TOKEN_CHANGED, period, about, before, after, cause)

    def subscription_change(self, notifier_id: bytes, smp_host: str, after: str, cause: str) -> bytes:
        period = self._keys.current()
        about = b'"queue":"%b","smp_host":%b' % (period.queue_text(notifier_id), _encode(smp_host))
        return self._change(Stage.SUBSCRIPTION_CHANGED, period, about, "", after, cause)

    def _change(
        self, stage: Stage, period: PseudonymPeriod, about: bytes, before: str, after: str, cause: str
    ) -> bytes:
        self._changes += 1
        return b'{"id":"%b-%d-%d","stage":"%b","at":%b,"router":%b,"period":"%b"%b,%b%b%b%b}\n' % (
            self._instance[1:-1],
            self._at,
            self._changes,
            _STAGES[stage],
            self._now,
            self._instance,
            period.name.encode(),
            _VERSION,
            about,
            b',"from_status":%b' % _encode(before) if before else b"",
            b',"to_status":%b' % _encode(after) if after else b"",
            b',"cause":%b' % _encode(cause) if cause else b"",
        )

    def _forget_some_queues(self) -> None:
        for notifier_id in list(islice(self._queues, MOST_QUEUES // 10 + 1)):
            del self._queues[notifier_id]

    def _keep(self, about: EventSubject, token_id: bytes) -> Pieces:
        route = self.route(about.smp_host, about.provider)
        return self.keep(about.notifier_id, about.nonce, about.received_at, token_id, route)

    def _pieces(self, about: EventSubject) -> Pieces:
        route = self.route(about.smp_host, about.provider)
        return self._make(about.notifier_id, about.nonce, about.received_at, about.token_id, route)

    def _make(
        self, notifier_id: bytes, nonce: bytes, received_at: float, token_id: bytes | None, route: bytes
    ) -> Pieces:
        """Make the pieces of a notification of any period."""
        period = self._keys.at(received_at)
        head = self._head if period is self._period else self._head_of(period)
        name = period.hidden(NOTIFICATION + notifier_id + nonce)
        return name, head, _queue_part(period, notifier_id, token_id, route)

    def _head_of(self, period: PseudonymPeriod) -> bytes:
        name = period.name.encode()
        return b',"router":%b,"period":"%b"%b,"notification":"' % (self._instance, name, _VERSION)


def _line(pieces: Pieces, middle: bytes, end: bytes) -> bytes:
    name, head, part = pieces
    return b"".join((START, name, middle, head, name, part, end))


def size_end(size: int) -> bytes:
    return b',"size":%d}\n' % size if size else END


def engine_end(engine: str) -> bytes:
    """The end of a line of a push by this engine."""
    return b',"engine":%b}\n' % _encode(engine) if engine else END


def _queue_part(period: PseudonymPeriod, notifier_id: bytes, token_id: bytes | None, route: bytes) -> bytes:
    token = b"" if token_id is None else b'","token":"' + period.token_text(token_id)
    return b'","queue":"%b%b","smp_host":%b' % (period.queue_text(notifier_id), token, route)


_VERSION: Final = b',"version":%d' % SCHEMA_VERSION
_STAGES: Final = {stage: stage.value.encode() for stage in Stage}
