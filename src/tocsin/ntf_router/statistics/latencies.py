"""How long the stages of a push take."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

BOUNDS_SECONDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    3600.0,
)


class Histogram:
    """Counts by upper bound, as Prometheus wants them."""

    __slots__ = ("about", "counts", "name", "sum")

    def __init__(self, name: str, about: str) -> None:
        self.name = name
        self.about = about
        self.counts = [0] * (len(BOUNDS_SECONDS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(BOUNDS_SECONDS, seconds)] += times
        self.sum += seconds * times


class NtfLatencies:
    def __init__(self) -> None:
        self.received_to_accepted = Histogram(
            "simplex_ntf_received_to_accepted_seconds",
            "From an NMSG's arrival to the provider's acceptance of the push that carries it.",
        )
        self.stored = Histogram(
            "simplex_ntf_store_seconds", "From an NMSG's arrival until it is safe in the store."
        )
        self.provider_answer = Histogram(
            "simplex_ntf_provider_seconds", "From sending a message push to the provider's answer."
        )

    def all(self) -> tuple[Histogram, ...]:
        return (self.received_to_accepted, self.stored, self.provider_answer)
