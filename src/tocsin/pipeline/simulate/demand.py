"""The daily load of a population on routers under each protocol: closed formulas over a few sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tocsin.pipeline.simulate.costs import (
    BYTES_PER_ASSOCIATION,
    BYTES_PER_SUBSCRIPTION,
    COSTS,
    NOTIFICATIONS_PER_BLOCK,
    PASS_SECONDS,
    SMP_BLOCK,
    SimulatedCommand,
)
from tocsin.pipeline.simulate.population import Population

DAY: Final = 86_400.0


class SimulatedProtocol(StrEnum):
    """How an NTF router learns of messages."""

    NSUB = "NSUB per queue"
    NSUBS = "NSUBS services"
    DIRECT = "direct notifications"


@dataclass(frozen=True, slots=True)
class PopulationSums:
    """Sums over the devices of a population."""

    tokens: int
    queues: float
    subscribed: float
    messages: float
    notifications: float
    """Per day, like messages and pushes."""
    pushes: float
    pushes_unneeded: float
    """Pushes sent while the app was open."""
    error: float = 0.0
    """Half the width of the 95 % interval of pushes, as a share. 0 if every device was simulated."""
    drawn: int = 1
    """Devices that were simulated one by one. If they are fewer than `tokens`, all sums are scaled up from them."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One population under one protocol."""

    protocol: SimulatedProtocol
    sums: PopulationSums
    commands: Mapping[SimulatedCommand, float]
    """Per day."""
    router_connections: float
    device_sessions: float
    """Sessions with NTF routers per day."""
    reconnect_commands: float
    """Commands of all NTF routers when the largest SMP router comes back."""
    reconnect_cpu_seconds: float
    bytes_a_day: float
    cpu_seconds_a_day: float
    memory_bytes: float
    """Memory of all NTF routers for queues."""

    @property
    def commands_a_day(self) -> float:
        """Without pushes, which are the same under all protocols."""
        return sum(
            number for command, number in self.commands.items() if command is not SimulatedCommand.PUSH
        )


def shares(population: Population) -> list[float]:
    """Share of queues by SMP router, largest first."""
    weights = [(rank + 1) ** -population.smp_skew for rank in range(population.smp_routers)]
    whole = sum(weights)
    return [weight / whole for weight in weights]


def demand(population: Population, sums: PopulationSums, protocol: SimulatedProtocol) -> Demand:
    pairs = _pairs(population, sums.subscribed)
    restarts = population.smp_restarts + population.ntf_restarts
    largest = shares(population)[0]
    commands = _commands(population, sums, protocol, pairs, restarts)
    alone = protocol is SimulatedProtocol.NSUB
    again = sums.subscribed * largest if alone else float(min(population.ntf_routers, pairs))
    cost = COSTS[SimulatedCommand.SUBSCRIBE if alone else SimulatedCommand.SUBSCRIBE_ALL]
    notification_bytes = _notification_blocks(population, sums.notifications) * SMP_BLOCK
    return Demand(
        protocol,
        sums,
        commands,
        pairs,
        _device_sessions(population, sums, protocol),
        again,
        again * cost.cpu_us / 1e6,
        sum(number * COSTS[command].bytes for command, number in commands.items()) + notification_bytes,
        sum(number * COSTS[command].cpu_us for command, number in commands.items()) / 1e6,
        sums.subscribed
        * (BYTES_PER_ASSOCIATION if protocol is SimulatedProtocol.DIRECT else BYTES_PER_SUBSCRIPTION),
    )


def _commands(
    population: Population, sums: PopulationSums, protocol: SimulatedProtocol, pairs: float, restarts: float
) -> dict[SimulatedCommand, float]:
    new = sums.subscribed * population.queue_turnover
    same = {
        SimulatedCommand.PUSH: sums.pushes,
        SimulatedCommand.CHECK_TOKEN: sums.tokens / population.check_days,
    }
    if (
        protocol is SimulatedProtocol.DIRECT
    ):  # devices inform SMP routers, which forward it: ntf.md 7.3, C5 to C8
        return {**same, SimulatedCommand.SUBSCRIBE_ALL: pairs * restarts, SimulatedCommand.FORWARD: new}
    device = {
        SimulatedCommand.NEW_SUBSCRIPTION: new,
        SimulatedCommand.CHECK_SUBSCRIPTION: sums.subscribed / population.check_days,
    }
    if protocol is SimulatedProtocol.NSUBS:
        return {
            **same,
            **device,
            SimulatedCommand.SUBSCRIBE_ALL: pairs * restarts,
            SimulatedCommand.ASSOCIATE: new,
        }
    return {**same, **device, SimulatedCommand.SUBSCRIBE: sums.subscribed * restarts + new}


def _pairs(population: Population, queues: float) -> float:
    """Expected number of pairs of an NTF and an SMP router with a queue between them, if queues spread at random."""
    each = queues / population.ntf_routers
    return population.ntf_routers * sum(-math.expm1(-each * share) for share in shares(population))


def _notification_blocks(population: Population, notifications: float) -> float:
    """Blocks per day. Notifications of one round to one NTF router share blocks."""
    passes = DAY / PASS_SECONDS
    whole = 0.0
    for share in shares(population):
        number = notifications * share / population.ntf_routers
        busy = passes * -math.expm1(-number / passes)
        whole += max(busy, number / NOTIFICATIONS_PER_BLOCK)
    return whole * population.ntf_routers


def _device_sessions(population: Population, sums: PopulationSums, protocol: SimulatedProtocol) -> float:
    """At most one per device and day, which does everything due. Direct notifications need only token checks."""
    token_checks = 1 / population.check_days
    if protocol is SimulatedProtocol.DIRECT:
        return sums.tokens * min(token_checks, 1.0)
    queues = sums.subscribed / sums.tokens
    due = token_checks + queues * (1 / population.check_days + population.queue_turnover)
    return sums.tokens * -math.expm1(-due)
