"""What `tocsin up` remembers between its starts, and parts that end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tocsin.lab.processes import ChildProcess, LabRouter, Ports, ports_of


def test_ports_are_chosen_once_and_kept(tmp_path: Path) -> None:
    ports = ports_of(tmp_path)
    numbers = json.loads((tmp_path / "ports.json").read_text())
    assert len(set(numbers.values())) == len(numbers) == 9
    assert ports_of(tmp_path) == ports


def test_ports_that_an_older_version_did_not_know_are_added(tmp_path: Path) -> None:
    before = ports_of(tmp_path)
    old = {"smp": before.smp, "ntf": before.ntf, "metrics": before.metrics, "push": before.push}
    (tmp_path / "ports.json").write_text(json.dumps(old))
    now = ports_of(tmp_path)
    assert (now.smp, now.ntf, now.metrics, now.push) == (before.smp, before.ntf, before.metrics, before.push)
    assert now.page
    assert now.smp_metrics
    assert ports_of(tmp_path) == now
    assert isinstance(now, Ports)


async def test_a_part_that_is_killed_is_not_running(tmp_path: Path) -> None:
    part = ChildProcess("waiting", tmp_path)
    part.kill()  # nothing yet
    await part.start("fake-apns", "--folder", tmp_path / "apns", "--port", 0)
    part.kill()
    assert await part.wait() == -9
    assert not part.running
    await part.stop()


async def test_a_router_that_ends_is_started_again_and_its_log_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.lab.processes.RESTART_SECONDS", 0.0)
    ports = ports_of(tmp_path)
    router = LabRouter("smp", tmp_path, ports.smp)
    await router.serve(control_port="off", prometheus_port="off")
    states: list[bool] = []

    def changed() -> None:
        states.append(router.serving)
        if len(states) == 2:
            raise StopFollowing

    try:
        assert router.serving
        router.kill()
        with pytest.raises(StopFollowing):
            await router.keep_serving(changed)
        assert states == [False, True]
        assert router.restarts == 1
        assert (tmp_path / "logs" / "smp.previous.log").exists()
    finally:
        await router.stop()


class StopFollowing(Exception):
    """The test has seen enough."""
