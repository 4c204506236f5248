"""Settings of clients: time limits, window, keep-alive, and delays between reconnections (smp.md 9.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tocsin.transport.client_sessions import DialSettings


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays between attempts: the first one until `increase_after` seconds have passed, then longer ones."""

    initial: float = 2.0
    increase_after: float = 10.0
    maximum: float = 60.0
    factor: float = 1.5
    jitter: float = 0.2
    """The share of a delay by which it varies at random, so that many clients do not reconnect together."""

    def __post_init__(self) -> None:
        if not 0 < self.initial <= self.maximum or self.factor < 1 or not 0 <= self.jitter < 1:
            raise ValueError(f"these delays never grow to their maximum: {self}")

    def delays(self) -> Iterator[float]:
        """Yield delays without jitter, forever."""
        delay, elapsed = self.initial, 0.0
        while True:
            yield delay
            elapsed += delay
            if elapsed >= self.increase_after and delay < self.maximum:
                delay = min(delay * self.factor, self.maximum)

    def spread(self, delay: float, chance: float) -> float:
        """Return the delay with jitter. `chance` is a random number from 0 to 1."""
        return delay * (1 + self.jitter * (2 * chance - 1))


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The defaults are those of the reference for background work."""

    dial: DialSettings = field(default_factory=DialSettings)
    response_timeout: float = 30.0
    window_bytes: int = 262_144
    """Bytes of blocks of a `request_all` that wait for answers at a time. The rest is not encoded yet.

    16 blocks of SMP, which is 2,160 subscriptions; more only fills caches and queues.
    """
    event_blocks: int = 128
    """How many blocks of events may wait. Beyond that the connection is not read, so the router waits."""
    ping_after: float = 600.0
    """Seconds without anything received after which a connection with subscriptions is probed."""
    drop_after_timeouts: int = 3
    """Give up the connection after this many time-outs in a row, if nothing was received for `drop_after`."""
    drop_after: float = 900.0
    close_seconds: float = 5.0
    backoff: Backoff = field(default_factory=Backoff)
