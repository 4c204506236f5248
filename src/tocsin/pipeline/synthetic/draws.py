"""Random columns that depend only on a seed, a name and the row's `id`, so any partitioning gives the same rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

STEPS: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Draws:
    seed: int

    def number(self, name: str) -> Column:
        """Any 64-bit number."""
        return F.xxhash64(F.lit(self.seed), F.lit(name), F.col("id"))

    def below(self, name: str, limit: int) -> Column:
        return F.pmod(self.number(name), F.lit(limit))

    def share(self, name: str) -> Column:
        """From 0 to 1, exclusive of 1."""
        return self.below(name, STEPS) / F.lit(float(STEPS))

    def uniform(self, name: str) -> Column:
        """Between 0 and 1, exclusive of both."""
        return (self.below(name, STEPS) + F.lit(0.5)) / F.lit(float(STEPS))

    def delay(self, name: str, usual: int) -> Column:
        """Microseconds: half are above the usual delay, some far above."""
        uniform = (self.below(name, STEPS) + F.lit(1)) / F.lit(float(STEPS))
        return F.floor(-F.log(uniform) * (usual / 0.693)).cast("long") + F.lit(1)

    def geometric(self, name: str, mean: float) -> Column:
        """0, 1, 2, …"""
        if mean == 0:
            return F.lit(0.0)
        return F.floor(F.log(self.uniform(name)) / math.log(mean / (1 + mean))).cast("double")

    def scattered(self, name: str, sigma: float) -> Column:
        """Log-normal with mean 1: a few values are far above."""
        distance = F.sqrt(-2 * F.log(self.uniform(f"{name} distance")))
        normal = distance * F.cos(2 * math.pi * self.uniform(f"{name} angle"))
        return F.exp(normal * sigma - sigma * sigma / 2)
