"""Lines of the event log about notifications, put together from ready-made pieces.

Theory of operation. The stages of one notification say the same about it: pseudonyms, SMP router, provider. That part
of the line is made at the first stage and kept until the last one. The result is byte for byte what `encode_events`
makes of the same `DeliveryEvent`.

All stages of a notification are hidden by the key of the day on which it was received. When a new day begins what is
kept is forgotten, since a key may have been erased.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from tocsin.observability.delivery_events import Stage
from tocsin.observability.pseudonyms import PseudonymKeys, PseudonymPeriod

MOST_KEPT: Final = 30_000
"""Notifications that are not at their end, about 15 MB; beyond it all are forgotten and made again."""
MOST_WAYS: Final = 10_000

_encode: Final = msgspec.json.encode


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
    def __init__(self, keys: PseudonymKeys, instance: str) -> None:
        self._keys = keys
        self._instance = _encode(instance)
        self._period: PseudonymPeriod | None = None
        self._kept: dict[bytes, tuple[bytes, bytes]] = {}
        """By notifier id and nonce: the notification's pseudonym, and what its lines have in common."""
        self._ways: dict[tuple[str, str], bytes] = {}
        self._now = b""
        self._head_of: PseudonymPeriod | None = None
        self._head = b""
        """What all lines of one period have in common."""

    def begin(self) -> None:
        """A moment in which some events happen: to be called before the first of their lines."""
        self._now = b'%d,"mono":%d' % (int(time.time() * 1_000_000), time.monotonic_ns() // 1000)
        period = self._keys.current()
        if period is not self._period or len(self._kept) > MOST_KEPT:
            self._period = period
            self._kept.clear()

    def first(self, stage: Stage, about: Notified, size: int) -> bytes:
        """A stage after which others may come."""
        name, shared = made = self._made(about)
        if about.token_id is not None:
            self._kept[about.notifier_id + about.nonce] = made
        kind = _STAGES[stage]
        if not size:
            return b'{"id":"%b.%b","stage":"%b","at":%b%b}\n' % (name, kind, kind, self._now, shared)
        return b'{"id":"%b.%b","stage":"%b","at":%b%b,"size":%d}\n' % (
            name,
            kind,
            kind,
            self._now,
            shared,
            size,
        )

    def attempt(self, about: Notified, number: int) -> bytes:
        key = about.notifier_id + about.nonce
        known = self._kept.get(key)
        if known is None:
            known = self._kept[key] = self._made(about)
        name, shared = known
        if not number:
            return b'{"id":"%b.attempted.0","stage":"attempted","at":%b%b}\n' % (name, self._now, shared)
        return b'{"id":"%b.attempted.%d","stage":"attempted","at":%b%b,"attempt":%d}\n' % (
            name,
            number,
            self._now,
            shared,
            number,
        )

    def last(self, stage: Stage, about: Notified, reason: str = "", attempt: int = 0) -> bytes:
        """The end of a notification."""
        known = self._kept.pop(about.notifier_id + about.nonce, None)
        name, shared = self._made(about) if known is None else known
        kind = _STAGES[stage]
        end = b',"reason":%b' % _encode(reason) if reason else b""
        if attempt:
            end += b',"attempt":%d' % attempt
        return b'{"id":"%b.%b","stage":"%b","at":%b%b%b}\n' % (name, kind, kind, self._now, shared, end)

    def _made(self, about: Notified) -> tuple[bytes, bytes]:
        period = self._keys.at(about.received_at)
        if period is not self._head_of:
            self._head_of = period
            self._head = b',"router":%b,"period":"%b","notification":"' % (
                self._instance,
                period.name.encode(),
            )
        notifier_id, token_id = about.notifier_id, about.token_id
        name = period.notification_text(notifier_id, about.nonce)
        token = b"" if token_id is None else b'","token":"' + period.token_text(token_id)
        return name, b'%b%b","queue":"%b%b","smp_host":%b' % (
            self._head,
            name,
            period.queue_text(notifier_id),
            token,
            self._way(about.smp_host, about.provider),
        )

    def _way(self, smp_host: str, provider: str) -> bytes:
        """From where to where, of which there are few."""
        known = self._ways.get((smp_host, provider))
        if known is None:
            if len(self._ways) >= MOST_WAYS:
                self._ways.clear()
            known = _encode(smp_host) + (b',"provider":%b' % _encode(provider) if provider else b"")
            self._ways[smp_host, provider] = known
        return known


_STAGES: Final = {stage: stage.value.encode() for stage in Stage}
