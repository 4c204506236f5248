"""Workers: what they inherit, and the ports and files that only one process can have."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.smp_harness import until
from tocsin.errors import ConfigError, StoreError
from tocsin.ntf_router.fleet.workers import WorkerPlace, WorkerProcesses, check_workers, settings_of_worker
from tocsin.ntf_router.settings.settings import DeliveryEngine, NtfSettings, StoreKind

SETTINGS = NtfSettings(
    store=Path("/var/ntf"),
    control_port=5227,
    prometheus_port=9102,
    event_log=Path("/var/ntf/events"),
    fleet=True,
    store_kind=StoreKind.URL,
)


def test_a_place_is_read_as_it_was_written() -> None:
    place = WorkerPlace(2, 7, {5223: [5, 6], 443: [8]})
    again = WorkerPlace.parse(place.text())
    assert (again.number, again.descriptors) == (2, [7, 5, 6, 8])
    assert again.text() == place.text()


@pytest.mark.parametrize("text", ["", "1", "1:2", "1:2:x=3", "1:2:443=", "a:2:443=3"])
def test_a_place_that_nobody_wrote_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--workers"):
        WorkerPlace.parse(text)


def test_the_first_worker_has_the_settings_as_they_are() -> None:
    assert settings_of_worker(SETTINGS, 1) == SETTINGS


def test_later_workers_have_the_next_ports_and_folders_of_their_own() -> None:
    third = settings_of_worker(SETTINGS, 3)
    assert (third.control_port, third.prometheus_port) == (5229, 9104)
    assert third.store == Path("/var/ntf/worker-3")
    assert third.event_log == Path("/var/ntf/events-3")
    assert third.event_log_keys == Path("/var/ntf/events-keys")  # the same pseudonyms


def test_later_workers_have_files_of_their_own_wherever_these_are() -> None:
    chosen = replace(
        SETTINGS, statistics_file=Path("/var/stats/ntf.log"), prometheus_file=Path("/var/metrics/ntf.prom")
    )
    second = settings_of_worker(chosen, 2)
    assert second.statistics_file == Path("/var/stats/ntf-2.log")
    assert second.prometheus_file == Path("/var/metrics/ntf-2.prom")
    assert (
        settings_of_worker(SETTINGS, 2).statistics_file == SETTINGS.statistics_file
    )  # in the worker's store
    assert settings_of_worker(replace(SETTINGS, statistics_file=None), 2).statistics_file is None


def test_what_is_off_or_chosen_by_the_system_stays_so() -> None:
    off = replace(SETTINGS, store=None, control_port=None, prometheus_port=0, event_log=None)
    second = settings_of_worker(off, 2)
    assert (second.store, second.control_port, second.prometheus_port) == (None, None, 0)
    assert (second.event_log, second.event_log_keys) == (None, None)


async def test_workers_without_a_fleet_are_refused() -> None:
    with pytest.raises(ConfigError, match="fleet: on"):
        await WorkerProcesses(lambda _place: ["false"], 2).run(replace(SETTINGS, fleet=False))


async def test_workers_without_a_database_are_refused() -> None:
    with pytest.raises(ConfigError, match="fleet: on needs a PostgreSQL database"):
        await WorkerProcesses(lambda _place: ["false"], 2).run(replace(SETTINGS, store_kind=StoreKind.MEMORY))


async def test_workers_that_should_hand_pushes_over_are_refused() -> None:
    engine = replace(SETTINGS.delivery, engine=DeliveryEngine.BOTH)
    with pytest.raises(ConfigError, match="push by themselves"):
        await WorkerProcesses(lambda _place: ["false"], 2).run(replace(SETTINGS, delivery=engine))


@pytest.mark.parametrize(
    ("control_port", "prometheus_port", "message"),
    [
        (9101, 9102, "control_port of worker 2 would be 9102, which is the prometheus_port of worker 1"),
        (442, None, "control_port of worker 2 would be 443, which is the port"),
        (5227, 5227, "prometheus_port of worker 1 would be 5227, which is the control_port of worker 1"),
        (None, 65_535, "prometheus_port of worker 2 would be 65536: choose a lower prometheus_port"),
    ],
)
async def test_ports_of_later_workers_that_somebody_else_needs_are_refused(
    control_port: int | None, prometheus_port: int | None, message: str
) -> None:
    settings = replace(SETTINGS, control_port=control_port, prometheus_port=prometheus_port)
    with pytest.raises(ConfigError, match=message):
        await WorkerProcesses(lambda _place: ["false"], 2).run(settings)


def test_ports_that_the_system_chooses_or_that_are_far_enough_apart_are_not_refused() -> None:
    check_workers(replace(SETTINGS, control_port=0, prometheus_port=0), 2)
    check_workers(replace(SETTINGS, control_port=9100, prometheus_port=9102), 2)


async def test_the_first_process_ends_if_no_worker_can_start() -> None:
    with pytest.raises(StoreError, match="no worker could start"):
        await WorkerProcesses(lambda _place: ["false"], 2).run(
            replace(SETTINGS, hosts=("127.0.0.1",), ports=(0,))
        )


async def test_a_worker_that_cannot_start_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def command(place: str) -> list[str]:
        return ["false"] if place.startswith("2:") else ["sleep", "60"]

    settings = replace(SETTINGS, hosts=("127.0.0.1",), ports=(0,))
    running = asyncio.create_task(WorkerProcesses(command, 2).run(settings))
    await until(lambda: "worker 2 ended with code 1; it starts again" in caplog.text)
    assert not running.done()
    os.kill(os.getpid(), signal.SIGTERM)
    await running
