"""Parses a router's metrics, as `operate.metrics` writes them, back into numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)(?: \d+)?")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles of a histogram. Each is the upper bound of its bucket."""

    count: int
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class MetricReadings:
    """The metrics of one router at one moment."""

    samples: Mapping[str, tuple[tuple[Mapping[str, str], float], ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Ignores lines that are not samples."""
        found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
        for line in text.splitlines():
            if sample := _SAMPLE.fullmatch(line):
                labels = dict(_LABEL.findall(sample[2] or ""))
                try:
                    found.setdefault(sample[1], []).append((labels, float(sample[3])))
                except ValueError:
                    continue
        return cls({name: tuple(samples) for name, samples in found.items()})

    def total(self, name: str) -> int | None:
        """The sum over all labels; None if the router does not report it."""
        samples = self.samples.get(name)
        return None if samples is None else int(sum(value for _, value in samples))

    def totals(self, *names: str) -> int | None:
        """The sum of several metrics; None if the router reports none of them."""
        known = [total for name in names if (total := self.total(name)) is not None]
        return sum(known) if known else None

    def by_label(self, name: str, label: str) -> dict[str, int]:
        return {labels.get(label, ""): int(value) for labels, value in self.samples.get(name, ())}

    def rows(self, name: str) -> tuple[tuple[Mapping[str, str], float], ...]:
        """Labels and values of all samples."""
        return self.samples.get(name, ())

    def quantiles(self, name: str) -> Quantiles | None:
        """None for a histogram without observations."""
        buckets = sorted(
            (float(labels["le"]), int(value))
            for labels, value in self.samples.get(f"{name}_bucket", ())
            if "le" in labels
        )
        if not buckets or not buckets[-1][1]:
            return None
        count = buckets[-1][1]

        def bound(rank: float) -> float:
            within = next(upper for upper, below in buckets if below >= math.ceil(rank * count))
            return within if math.isfinite(within) else buckets[-2][0]

        return Quantiles(count, bound(0.5), bound(0.95), bound(0.99))
