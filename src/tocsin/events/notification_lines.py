"""Lines of the event log about notifications, put together from ready-made pieces.

Theory of operation. The stages of one notification say the same about it: pseudonyms, SMP router, provider. What they
say is made at the first stage and kept until the last one; what a queue's notifications have in common is kept longer;
what is said of a moment and of a stage is made once for all lines of a batch. Nothing is joined before it is written.
The result is byte for byte what `encode_events` makes of the same `DeliveryEvent`:

    {"id":"  N  .received","stage":"received","at":1,"mono":2  ,"router":"r",…,"notification":"  N  ","queue":…  }
    ─START─ name ──────────────── middle ───────────────────── ──────────── head ───────────── name ── part ── end

All stages of a notification are hidden by the key of the day on which it was received. When a new day begins what is
kept is forgotten, since a key may have been erased.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from tocsin.events.delivery_events import Stage
from tocsin.events.pseudonyms import NOTIFICATION, PERIOD_SECONDS, PseudonymKeys, PseudonymPeriod

MOST_KEPT: Final = 30_000
"""Notifications that are not at their end, about 10 MB; beyond it all are forgotten and made again."""
MOST_QUEUES: Final = 60_000
"""Whose part of the line is kept, about 25 MB; beyond it the oldest tenth is forgotten."""
MOST_WAYS: Final = 10_000
START: Final = b'{"id":"'
END: Final = b"}\n"
"""Of a line with nothing more to say."""

_encode: Final = msgspec.json.encode

Pieces: TypeAlias = tuple[bytes, bytes, bytes]
"""`name`, `head` and `part` of one notification's lines."""


class Notified(msgspec.Struct, frozen=True, gc=False):
    """Whose notification an event is about."""

    notifier_id: bytes
    nonce: bytes
    received_at: float
    smp_host: str
    token_id: bytes | None = None
    provider: str = ""

    def __repr__(self) -> str:
        """Without the ids."""
        return f"Notified({self.smp_host!r})"


class NotificationLines:
    """`first`, `attempt` and `last` make a line each. Who makes many at a time puts the pieces together himself."""

    def __init__(self, keys: PseudonymKeys, instance: str) -> None:
        self._keys = keys
        self._instance = _encode(instance)
        self._kept: dict[bytes, Pieces] = {}
        """By notifier id and nonce."""
        self.find: Final[Callable[[bytes], Pieces | None]] = self._kept.get
        self.take: Final[Callable[[bytes, None], Pieces | None]] = self._kept.pop
        self._queues: dict[bytes, tuple[bytes, bytes, bytes]] = {}
        """By notifier id, for the present period: token id and way, and the part of the line that they make."""
        self._ways: dict[tuple[str, str], bytes] = {}
        self._now = b""
        self._period: PseudonymPeriod | None = None
        self._period_began = 0.0
        self._head = b""
        """What all lines of the present period have in common."""

    def begin(self) -> None:
        """A moment in which some events happen: to be called before the first of their lines."""
        self._now = b'%d,"mono":%d' % (int(time.time() * 1_000_000), time.monotonic_ns() // 1000)
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
        """Not of attempts, whose ids have their number."""
        kind = _STAGES[stage]
        return b'.%b","stage":"%b","at":%b' % (kind, kind, self._now)

    def attempt_middle(self, number: int) -> bytes:
        return b'.attempted.%d","stage":"attempted","at":%b' % (number, self._now)

    def way(self, smp_host: str, provider: str) -> bytes:
        """From where to where, of which there are few."""
        known = self._ways.get((smp_host, provider))
        if known is None:
            if len(self._ways) >= MOST_WAYS:
                self._ways.clear()
            known = _encode(smp_host) + (b',"provider":%b' % _encode(provider) if provider else b"")
            self._ways[smp_host, provider] = known
        return known

    def keep(
        self, notifier_id: bytes, nonce: bytes, received_at: float, token_id: bytes, way: bytes
    ) -> Pieces:
        """The pieces of a notification, which `find` and `take` then find by its notifier id and nonce."""
        key = notifier_id + nonce
        period = self._period
        if period is None or received_at < self._period_began:
            made = self._made(notifier_id, nonce, received_at, token_id, way)
        else:
            name = period.hidden(NOTIFICATION + key)
            known = self._queues.get(notifier_id)
            if known is None or known[0] != token_id or known[1] != way:
                if len(self._queues) >= MOST_QUEUES:
                    self._forget_some_queues()
                known = token_id, way, _queue_part(period, notifier_id, token_id, way)
                self._queues[notifier_id] = known
            made = name, self._head, known[2]
        self._kept[key] = made
        return made

    def first(self, stage: Stage, about: Notified, size: int) -> bytes:
        """A stage after which others may come."""
        pieces = self._pieces(about) if about.token_id is None else self._keep(about, about.token_id)
        return _line(pieces, self.middle(stage), size_end(size))

    def attempt(self, about: Notified, number: int) -> bytes:
        pieces = self.find(about.notifier_id + about.nonce)
        if pieces is None:
            pieces = self._pieces(about) if about.token_id is None else self._keep(about, about.token_id)
        end = b',"attempt":%d}\n' % number if number else END
        return _line(pieces, self.attempt_middle(number), end)

    def last(self, stage: Stage, about: Notified, reason: str = "", attempt: int = 0) -> bytes:
        """The end of a notification."""
        known = self.take(about.notifier_id + about.nonce, None)
        pieces = self._pieces(about) if known is None else known
        end = b',"reason":%b' % _encode(reason) if reason else b""
        if attempt:
            end += b',"attempt":%d' % attempt
        return _line(pieces, self.middle(stage), end + END)

    def _forget_some_queues(self) -> None:
        for notifier_id in list(islice(self._queues, MOST_QUEUES // 10 + 1)):
            del self._queues[notifier_id]

    def _keep(self, about: Notified, token_id: bytes) -> Pieces:
        way = self.way(about.smp_host, about.provider)
        return self.keep(about.notifier_id, about.nonce, about.received_at, token_id, way)

    def _pieces(self, about: Notified) -> Pieces:
        way = self.way(about.smp_host, about.provider)
        return self._made(about.notifier_id, about.nonce, about.received_at, about.token_id, way)

    def _made(
        self, notifier_id: bytes, nonce: bytes, received_at: float, token_id: bytes | None, way: bytes
    ) -> Pieces:
        """Of whatever period."""
        period = self._keys.at(received_at)
        head = self._head if period is self._period else self._head_of(period)
        name = period.hidden(NOTIFICATION + notifier_id + nonce)
        return name, head, _queue_part(period, notifier_id, token_id, way)

    def _head_of(self, period: PseudonymPeriod) -> bytes:
        return b',"router":%b,"period":"%b","notification":"' % (self._instance, period.name.encode())


def _line(pieces: Pieces, middle: bytes, end: bytes) -> bytes:
    name, head, part = pieces
    return b"".join((START, name, middle, head, name, part, end))


def size_end(size: int) -> bytes:
    return b',"size":%d}\n' % size if size else END


def _queue_part(period: PseudonymPeriod, notifier_id: bytes, token_id: bytes | None, way: bytes) -> bytes:
    token = b"" if token_id is None else b'","token":"' + period.token_text(token_id)
    return b'","queue":"%b%b","smp_host":%b' % (period.queue_text(notifier_id), token, way)


_STAGES: Final = {stage: stage.value.encode() for stage in Stage}
