from __future__ import annotations

from dataclasses import replace

import pytest

from tocsin.pipeline.simulate.costs import COSTS, SimulatedCommand
from tocsin.pipeline.simulate.demand import Demand, PopulationSums, SimulatedProtocol, demand, shares
from tocsin.pipeline.simulate.population import Population

POPULATION = Population(
    smp_routers=10, ntf_routers=2, smp_skew=0, smp_restarts=1, ntf_restarts=2, queue_turnover=0.01
)
SUMS = PopulationSums(1_000, 50_000, 40_000, 100_000, 80_000, 79_000, 8_000)


def asked(
    protocol: SimulatedProtocol, population: Population = POPULATION, sums: PopulationSums = SUMS
) -> Demand:
    return demand(population, sums, protocol)


def test_nsub_repeats_every_queue_at_every_restart() -> None:
    found = asked(SimulatedProtocol.NSUB)
    assert found.commands[SimulatedCommand.SUBSCRIBE] == 40_000 * 3 + 400
    assert found.reconnect_commands == pytest.approx(4_000)
    assert found.reconnect_cpu_seconds == pytest.approx(4_000 * 56e-6)


@pytest.mark.parametrize("protocol", [SimulatedProtocol.NSUBS, SimulatedProtocol.DIRECT])
def test_one_subscription_for_a_pair_of_routers_does_not_grow_with_queues(
    protocol: SimulatedProtocol,
) -> None:
    found, larger = asked(protocol), asked(protocol, sums=replace(SUMS, subscribed=4e7))
    assert found.commands[SimulatedCommand.SUBSCRIBE_ALL] == pytest.approx(10 * 2 * 3)
    assert found.reconnect_commands == larger.reconnect_commands == 2


def test_services_associate_new_queues_and_direct_notifications_spare_devices_all_of_it() -> None:
    services, direct = asked(SimulatedProtocol.NSUBS), asked(SimulatedProtocol.DIRECT)
    assert (
        services.commands[SimulatedCommand.ASSOCIATE]
        == services.commands[SimulatedCommand.NEW_SUBSCRIPTION]
        == 400
    )
    assert services.commands[SimulatedCommand.CHECK_SUBSCRIPTION] == pytest.approx(40_000 / 3)
    assert direct.commands.keys() == {
        SimulatedCommand.PUSH,
        SimulatedCommand.CHECK_TOKEN,
        SimulatedCommand.SUBSCRIBE_ALL,
        SimulatedCommand.FORWARD,
    }
    assert direct.device_sessions < services.device_sessions <= SUMS.tokens
    assert direct.memory_bytes < services.memory_bytes


def test_pushes_and_connections_are_the_same_in_all() -> None:
    found = [asked(protocol) for protocol in SimulatedProtocol]
    assert {each.commands[SimulatedCommand.PUSH] for each in found} == {SUMS.pushes}
    assert [each.router_connections for each in found] == [pytest.approx(20)] * 3
    assert found[0].commands_a_day > found[1].commands_a_day > found[2].commands_a_day
    assert found[0].cpu_seconds_a_day > found[1].cpu_seconds_a_day > found[2].cpu_seconds_a_day
    assert found[0].bytes_a_day > found[2].bytes_a_day


def test_few_queues_do_not_connect_all_pairs() -> None:
    assert asked(SimulatedProtocol.NSUB, sums=replace(SUMS, subscribed=3)).router_connections < 3


def test_bytes_and_cpu_are_the_sums_of_the_costs() -> None:
    found = asked(SimulatedProtocol.NSUBS, sums=replace(SUMS, notifications=0, pushes=0))
    assert found.bytes_a_day == pytest.approx(
        sum(n * COSTS[command].bytes for command, n in found.commands.items())
    )
    assert found.cpu_seconds_a_day == pytest.approx(
        sum(n * COSTS[c].cpu_us for c, n in found.commands.items()) / 1e6
    )


def test_many_notifications_share_blocks_and_few_do_not() -> None:
    alone = replace(POPULATION, smp_routers=1, ntf_routers=1)
    one = _notification_bytes(alone, 1)
    assert one == pytest.approx(16_384, rel=1e-3)
    assert _notification_bytes(alone, 1e9) == pytest.approx(1e9 / 80 * 16_384)


def _notification_bytes(population: Population, notifications: float) -> float:
    with_them, without = (
        asked(SimulatedProtocol.NSUB, population, replace(SUMS, notifications=n))
        for n in (notifications, 0.0)
    )
    return with_them.bytes_a_day - without.bytes_a_day


def test_routers_are_as_unequal_as_asked_for() -> None:
    assert shares(POPULATION) == [pytest.approx(0.1)] * 10
    unequal = shares(replace(POPULATION, smp_skew=1))
    assert unequal[0] == pytest.approx(2 * unequal[1])
    assert sum(unequal) == pytest.approx(1)


def test_every_cost_names_its_source() -> None:
    assert COSTS.keys() == set(SimulatedCommand)
    assert all(cost.source and cost.cpu_us > 0 and cost.bytes > 0 for cost in COSTS.values())
