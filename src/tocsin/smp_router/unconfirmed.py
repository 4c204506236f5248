"""Notifications that were sent on a connection and are kept, until it is certain that they arrived (decision 0009).

In a direct session the receiver says what it has stored, so a notification is kept until then. NMSG of the usual
protocol has no acknowledgement. There a notification is kept for some seconds after the peer's system acknowledged its
bytes. If the connection ends in order meanwhile, the program at the other end has read them. If it is reset, they are
sent once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from tocsin.protocol.direct.dialects import is_direct
from tocsin.smp_router.session.peers import Peer
from tocsin.smp_router.session.requests import NamedNotification

MOST_UNACKNOWLEDGED: Final = 50_000
"""Notifications of a connection beyond which others wait in the store until the receiver acknowledges some."""


class AtEnd(NamedTuple):
    """The unconfirmed notifications of a connection that has ended, sorted by the next step."""

    received: list[NamedNotification]
    again: list[NamedNotification]
    """To be sent again: nothing says that they arrived."""
    once_more: list[NamedNotification]
    """To be sent again, but no third time: the peer's system had them, and its program may have."""


class Unconfirmed(Protocol):
    @property
    def has_room(self) -> bool:
        """Whether more may be sent before something is confirmed."""

    def add(self, sent: Sequence[NamedNotification], once_more: Set[tuple[bytes, bytes]]) -> None:
        """Note what was just written to the connection. What is in `once_more` is not sent again if it arrives."""

    def take_confirmed(self, now: float, patience: float) -> list[NamedNotification]:
        """Remove and return what has arrived for certain, or `patience` seconds ago as far as one can know."""

    def at_end(self, now: float) -> AtEnd: ...


def unconfirmed_of(peer: Peer) -> Unconfirmed:
    return UntilAcknowledged(peer) if is_direct(peer.session.dialect) else UntilArrived(peer)


class UntilAcknowledged:
    """Direct sessions: NRCV counts the notifications of the connection that are stored."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._sent: deque[NamedNotification] = deque()
        self._taken = 0

    @property
    def has_room(self) -> bool:
        return len(self._sent) - (self._peer.notifications_acknowledged - self._taken) < MOST_UNACKNOWLEDGED

    def add(self, sent: Sequence[NamedNotification], once_more: Set[tuple[bytes, bytes]]) -> None:
        self._sent.extend(sent)

    def take_confirmed(self, now: float, patience: float) -> list[NamedNotification]:
        count = self._peer.notifications_acknowledged - self._taken
        self._taken += count
        return [self._sent.popleft() for _ in range(count)]

    def at_end(self, now: float) -> AtEnd:
        received = self.take_confirmed(now, 0.0)
        return AtEnd(received, list(self._sent), [])


@dataclass(slots=True)
class _Batch:
    """Notifications that were sent together."""

    sent: Sequence[NamedNotification]
    upto: int
    """Blocks that the connection had written, including the last of these notifications."""
    received_at: float
    """The time of the peer's last block before these were sent."""
    is_last_time: bool
    reached_at: float | None = None
    """Loop time at which they were first known to have reached the peer's system."""


class UntilArrived:
    """The usual protocol. Where our system does not report acknowledged bytes, a later block of the peer counts."""

    def __init__(self, peer: Peer) -> None:
        self._connection = peer.connection.connection
        self._batches: list[_Batch] = []

    @property
    def has_room(self) -> bool:
        """The connection's write queue is the limit."""
        return True

    def add(self, sent: Sequence[NamedNotification], once_more: Set[tuple[bytes, bytes]]) -> None:
        written, received_at = self._connection.blocks_written, self._connection.received_at
        last_time = [each for each in sent if each[:2] in once_more] if once_more else []
        if last_time:
            self._batches.append(_Batch(last_time, written, received_at, is_last_time=True))
        if len(last_time) < len(sent):
            others = [each for each in sent if each[:2] not in once_more] if last_time else sent
            self._batches.append(_Batch(others, written, received_at, is_last_time=False))

    def take_confirmed(self, now: float, patience: float) -> list[NamedNotification]:
        self._note_reached(now)
        kept: list[_Batch] = []
        confirmed: list[NamedNotification] = []
        for batch in self._batches:
            is_early = not batch.is_last_time and now < (batch.reached_at or 0.0) + patience
            if batch.reached_at is None or is_early:
                kept.append(batch)
            else:
                confirmed += batch.sent
        self._batches = kept
        return confirmed

    def at_end(self, now: float) -> AtEnd:
        self._note_reached(now)
        result = AtEnd([], [], [])
        for batch in self._batches:
            if batch.reached_at is None:
                result.again.extend(batch.sent)
            elif batch.is_last_time or self._connection.ended_in_order:
                result.received.extend(batch.sent)
            else:
                result.once_more.extend(batch.sent)
        return result

    def _note_reached(self, now: float) -> None:
        acknowledged, received_at = self._connection.blocks_acknowledged, self._connection.received_at
        for batch in reversed(self._batches):
            if batch.reached_at is not None:
                break  # earlier batches arrived before
            if received_at > batch.received_at if acknowledged is None else acknowledged >= batch.upto:
                batch.reached_at = now
