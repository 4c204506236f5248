"""The benchmarks run and print what they promise. What they measure is not asserted here."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.auth_timing import PAIRS
from bench.timing_audit import SEVERAL_KEYS, compare, rank_sum_p
from tests.doubles.spark_cluster import QUICK_JAVA

ROOT = Path(__file__).resolve().parents[2]


def results_of(module: str, *arguments: str, java: bool = False) -> list[dict[str, Any]]:
    """Run a benchmark. Returns what its last line says."""
    environment = os.environ | QUICK_JAVA if java else os.environ
    command = [sys.executable, "-m", module, *arguments]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert finished.returncode == 0, finished.stderr[-3000:]
    found: list[dict[str, Any]] = json.loads(finished.stdout.splitlines()[-1])
    return found


def test_bench_wire_ends_in_one_json_line_with_every_command_and_key_kind() -> None:
    results = results_of("bench.wire", "--quick")
    assert all({"name", "value", "unit"} <= result.keys() for result in results)
    names = {result["name"] for result in results if "limit" in result}
    for command in ("SUB", "SEND", "NSUB", "TCHK"):
        for key in ("Ed25519", "Ed448", "X25519 first use"):
            assert f"{command}, {key}" in names
    assert any("idle connection" in name for name in names)


def test_bench_smp_ends_in_one_json_line_with_its_targets() -> None:
    results = results_of("bench.smp", "--quick")
    limited = {result["name"] for result in results if "limit" in result}
    assert "SEND of 15 KiB, X25519, memory store" in limited
    assert "memory of a queue with notifier" in limited
    assert any(name.startswith("restart with") for name in limited)
    assert any("16 pairs with one message in flight" in name for name in limited)


def test_bench_fleet_ends_in_one_json_line_with_the_ratio_of_two_instances() -> None:
    results = results_of("bench.fleet", "--quick")
    [ratio] = [result for result in results if "limit" in result]
    assert ratio["name"].startswith("pushes by two instances on two cores")


def test_bench_start_ends_in_one_json_line_with_its_target() -> None:
    starts = results_of("bench.start", "--quick")
    what = "time to the first push after a start with 2,000 subscriptions in PostgreSQL"
    assert [each["name"] for each in starts] == [f"{what}, start {number}" for number in (1, 2, 3)]
    assert all("limit" in each for each in starts)


def test_bench_push_ends_in_one_json_line_with_every_provider() -> None:
    results = results_of("bench.push", "--quick")
    limited = [result["name"].partition(":")[0] for result in results if "limit" in result]
    assert limited == ["APNs", "FCM", "Web Push, 1 host", "Web Push, 20 hosts"]


def test_bench_auth_ends_in_one_json_line_with_every_command_and_pair_of_keys() -> None:
    results = results_of("bench.auth_timing", "--quick")
    assert all(result["limit"] == 0.30 and 0 <= result["ratio"] < 1 for result in results)
    kinds = ("Ed25519", "Ed448", "X25519")
    pairs = {(queue, used) for queue in kinds for used in kinds} - {
        ("Ed25519", "Ed448"),
        ("Ed25519", "X25519"),
    }
    at_smp = {
        f"{command}, queue {queue}, used {used}: {where}"
        for command in ("SUB", "SEND", "NSUB")
        for queue, used in pairs
        for where in ("over TLS", "in the router")
    }
    at_ntf = {
        f"{command}, token {token}, used {used}: over TLS"
        for command in ("TCHK", "SCHK")
        for token, used in pairs
    }
    assert {result["name"] for result in results} == at_smp | at_ntf


def test_bench_ntf_commands_ends_in_one_json_line_with_both_stores() -> None:
    results = results_of("bench.ntf_commands", "--quick")
    names = {result["name"] for result in results}
    assert {
        "TCHK, in memory",
        "TCHK, PostgreSQL",
        "SCHK, PostgreSQL",
        "SNEW, PostgreSQL",
        "TNEW, PostgreSQL",
    } <= names


def test_bench_ntf_store_ends_in_one_json_line_with_its_targets() -> None:
    results = results_of("bench.ntf_store", "--quick")
    limited = {result["name"] for result in results if "limit" in result}
    assert "notifications recorded and settled, on disk" in limited
    assert any(name.endswith(": disconnected") for name in limited)


@pytest.mark.timeout(180)
def test_bench_ntf_ends_in_one_json_line_with_its_targets() -> None:
    results = results_of("bench.ntf", "--quick")
    limited = {result["name"] for result in results if "limit" in result}
    for store in ("in memory", "PostgreSQL"):
        for milliseconds in (0, 50, 200):
            where = f"{store}, provider at {milliseconds} ms"
            assert f"NMSG to push, {where}: pushes per second of CPU" in limited
    assert any(name.startswith("memory of a subscription") for name in limited)
    assert any(result["name"].startswith("resubscription of") for result in results)


def test_bench_agent_ends_in_one_json_line_with_commands_blocks_and_the_cost_of_a_wake() -> None:
    results = {result["name"]: result for result in results_of("bench.agent", "--quick")}
    assert "ratio" in results["a wake by a push with 6 entries: CPU"]
    created, enabled, together = (
        "300 connections without notifications",
        "notifications of 300 connections",
        "300 connections with notifications",
    )
    assert results[f"{created}: SMP commands"]["value"] == 300  # NEW
    assert results[f"{enabled}: SMP commands"]["value"] == 300  # NKEY
    assert results[f"{enabled}: NTF commands"]["value"] >= 300  # SNEW, and what the token needs
    assert results[f"{together}: SMP commands"]["value"] == 300  # NEW, with the notifier in it
    assert results[f"{enabled}: SMP blocks"]["value"] < 300 / 10


def test_bench_direct_ends_in_one_json_line_and_needs_one_command() -> None:
    results = results_of("bench.direct", "--quick")
    commands = {result["name"]: result["value"] for result in results if "commands" in result["name"]}
    assert commands == {
        "200 queues, NSUB, one by one: commands": 200,
        "200 queues, NSUBS, by certificate: commands": 1,
        "200 queues, NSSUB, direct: commands": 1,
    }


@pytest.mark.timeout(400)
def test_bench_pipeline_ends_in_one_json_line_with_the_targets_of_quiet_weeks_and_an_idle_service() -> None:
    found = results_of("bench.pipeline", "--quick", "--only", "weeks", "--only", "idle", java=True)
    results = {result["name"]: result for result in found}
    assert [name.partition(",")[0] for name, result in results.items() if "limit" in result] == [
        "build",
        "report of 14 days: wall time",
        "nearly idle service",
    ]
    [built] = [
        result for name, result in results.items() if name.endswith("notifications built since the start")
    ]
    assert built["value"] > 0


@pytest.mark.timeout(400)
def test_builds_leave_no_frames_in_memory_and_few_files() -> None:
    """`python -m bench.pipeline_growth` does a hundred, and also compares memory."""
    files, frames, *memory = results_of("bench.pipeline_growth", "--builds", "2", java=True)
    assert files["ratio"] <= files["limit"]
    assert frames["value"] == 0
    assert [result["name"] for result in memory] == [
        f"2 builds: {what}" for what in ("Java's heap after collection", "Java's classes", "Python")
    ]


def test_bench_scale_compares_each_figure_with_the_fewest_units_and_draws_it(tmp_path: Path) -> None:
    sweeps = ("--only", "subscriptions", "--only", "connections")
    results = results_of("bench.scale", "--quick", *sweeps, "--save", str(tmp_path))
    limited = {result["name"].partition(":")[0] for result in results if "limit" in result}
    assert {"memory of a subscription", "CPU of a notification", "memory of a connection"} <= limited
    assert sorted(each.name for each in tmp_path.iterdir()) == ["connections.svg", "subscriptions.svg"]


def test_bench_web_push_http1_compares_both_clients() -> None:
    ours, h11 = results_of("bench.web_push_http1", "--quick")
    assert ours["name"] == "our HTTP/1.1 client"
    assert h11["ratio"] > 0


def test_audit_timing_compares_every_pair_of_reasons_at_both_routers() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "bench.timing_audit", "--quick", "--seed", "7"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = (3 * len(PAIRS) + len(SEVERAL_KEYS) + 2 * len(PAIRS)) * 3
    assert f"{rows} comparisons, level 0.01 in all" in " ".join(finished.stdout.split())


def test_a_difference_is_significant_only_if_there_is_one() -> None:
    chance = random.Random(7)
    same = [[chance.gauss(100, 10) for _ in range(400)] for _ in range(2)]
    slower = [value + 10 for value in same[1]]
    assert rank_sum_p(*same) > 0.01
    assert rank_sum_p(same[0], slower) < 1e-20
    assert rank_sum_p([1.0] * 30, [1.0] * 30) == 1.0


def test_a_row_fails_if_a_difference_is_significant_and_not_negligible() -> None:
    times = [100.0 + number / 100 for number in range(400)]
    [wrong_and_unknown, wrong_and_other, _] = compare("SUB", [times, [each + 20 for each in times], times])
    assert wrong_and_unknown.fails(3)
    assert not wrong_and_other.fails(3)
    [little, *_] = compare("SUB", [times, [each + 3 for each in times], times])
    assert little.p < 1e-6
    assert not little.fails(3)
