"""Files for operators (deploy/): as far as they can be checked without Docker, Prometheus and Grafana."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it has no types

from tocsin.cli.main import build_parser
from tocsin.ntf_router.fleet.workers import settings_of_worker
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.operate.operator_pages import READY_PATH
from tocsin.pipeline.service.settings import load_settings
from tools import grafana_dashboard, reference_pages

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
GUIDE = ROOT / "docs" / "howto" / "scale-out.md"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
RULES = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
_WORDS = frozenset(
    [
        "rate",
        "time",
        "increase",
        "last_over_time",
        "delta",
        "histogram_quantile",
        "sum",
        "by",
        "and",
        "or",
        "unless",
        "on",
        "for",
        "up",
        "job",
        "reason",
        "le",
        "severity",
        "__rate_interval",
    ]
)


@pytest.fixture(scope="module")
def known() -> set[str]:
    """Names of all series that routers tell."""
    names = {"up"}
    for lines in reference_pages.metrics().values():
        for name, kind, _ in lines:
            names.update(
                f"{name}{end}" for end in ("_bucket", "_sum", "_count")
            ) if kind == "histogram" else names.add(name)
    return names


def series_of(expression: str) -> set[str]:
    """The metrics that a PromQL expression reads."""
    without_texts = re.sub(r'"[^"]*"|\[[^\]]*\]', "", expression)
    words = re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", without_texts)
    return {word for word in words if word not in _WORDS and not word.isdigit()}


def is_balanced(expression: str) -> bool:
    return all(expression.count(a) == expression.count(b) for a, b in ("()", "[]", "{}"))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_reads_what_routers_tell_and_says_what_to_do(rule: dict[str, Any], known: set[str]) -> None:
    assert series_of(rule["expr"]) <= known
    assert is_balanced(rule["expr"])
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["action"]


def test_the_dashboard_is_current_and_reads_what_routers_tell(known: set[str]) -> None:
    assert grafana_dashboard.FILE.read_text() == grafana_dashboard.text(), (
        "run: python -m tools.grafana_dashboard"
    )
    dashboard = json.loads(grafana_dashboard.FILE.read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in panels:
        assert panel["description"]
        for target in panel["targets"]:
            assert series_of(target["expr"]) <= known, panel["title"]
            assert is_balanced(target["expr"])
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24


def commands_in(lines: Iterator[str]) -> list[list[str]]:
    return [line.split()[1:] for line in lines]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_command_that_exists(unit: Path) -> None:
    [start] = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    program, *arguments = start.removeprefix("ExecStart=").split()
    assert program == "/opt/tocsin/bin/tocsin"
    build_parser().parse_args(arguments)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_accepts_a_unit_and_finds_little_exposed(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"^ExecStart=.*$", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE))
    verified = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    security = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=40", str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert security.returncode == 0, security.stdout[-300:]


def test_each_worker_of_the_ntf_router_may_write_its_event_log() -> None:
    unit = (DEPLOY / "systemd" / "tocsin-ntf.service").read_text()
    folders = [
        Path(each.removeprefix("-"))
        for line in unit.splitlines()
        if line.startswith("ReadWritePaths=")
        for each in line.removeprefix("ReadWritePaths=").split()
    ]
    settings = NtfSettings(event_log=Path("/var/opt/tocsin-events/ntf"))
    for number in (1, 2, 3):
        place = settings_of_worker(settings, number)
        for file in (place.event_log, place.store):
            assert file is not None
            assert any(file.is_relative_to(folder) for folder in folders), file


def example(first_line: str) -> str:
    """The block of the guide that begins so."""
    blocks: list[str] = re.findall(r"^```\n(.*?)^```$", GUIDE.read_text(), flags=re.MULTILINE | re.DOTALL)
    return next(block for block in blocks if block.startswith(first_line))


def test_the_balancers_of_the_guide_give_up_connections_and_ask_where_routers_answer(tmp_path: Path) -> None:
    haproxy = example("defaults\n")
    for each in ("connect", "client", "server"):
        assert re.search(rf"^    timeout {each} \d", haproxy, flags=re.MULTILINE)
    assert f"option httpchk GET {READY_PATH}\n" in haproxy
    assert "proxy_timeout 1h;" in example("stream {")
    if (program := shutil.which("haproxy")) is not None:
        file = tmp_path / "haproxy.cfg"
        file.write_text(haproxy)
        checked = subprocess.run(
            [program, "-c", "-f", str(file)], capture_output=True, text=True, check=False
        )
        assert (checked.returncode, "WARNING" in checked.stderr) == (0, False), checked.stderr


SPARK_SERVICES = ("spark-master", "spark-worker", "deliver", "run")


@pytest.mark.parametrize("name", ["smp", "ntf", "ntf-2", *SPARK_SERVICES])
def test_a_container_starts_a_command_that_exists_and_may_do_little(name: str) -> None:
    service = COMPOSE["services"][name]
    build_parser().parse_args(service["command"])
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    named = {each.partition(":")[0] for each in service.get("volumes", ()) if not each.startswith(".")}
    assert named <= set(COMPOSE["volumes"])


def mounted(name: str) -> dict[str, str]:
    """Places in a container, and what is mounted there with its mode."""
    parts = [each.split(":") for each in COMPOSE["services"][name].get("volumes", ())]
    return {place: ":".join([source, *mode]) for source, place, *mode in parts}


def test_spark_is_started_only_if_it_is_asked_for_and_has_the_image_with_spark() -> None:
    for name in SPARK_SERVICES:
        service = COMPOSE["services"][name]
        assert service["profiles"] == ["spark"]
        assert "pipeline" in service["build"]["args"]["EXTRAS"].split(",")
        assert "ports" not in service  # the cluster trusts whoever reaches it
    assert (
        COMPOSE["services"]["ntf"]["environment"]["TOCSIN_NTF_DELIVERY_ENGINE"]
        == "${DELIVERY_ENGINE:-inline}"
    )


def test_router_and_job_meet_where_executors_can_read() -> None:
    ntf = COMPOSE["services"]["ntf"]["environment"]
    options = build_parser().parse_args(COMPOSE["services"]["deliver"]["command"])
    assert [str(each) for each in options.handover] == [ntf["TOCSIN_NTF_DELIVERY_HANDOVER"]]
    assert str(options.handover_keys) == ntf["TOCSIN_NTF_DELIVERY_HANDOVER_KEYS"]
    assert options.master == "spark://spark-master:7077"
    for name in ("deliver", "spark-worker"):
        places = mounted(name)
        assert places[ntf["TOCSIN_NTF_DELIVERY_HANDOVER"]] == "handover"
        assert places[ntf["TOCSIN_NTF_DELIVERY_HANDOVER_KEYS"]] == "handover-keys:ro"
        assert places[str(options.config.parent)] == "ntf-config:ro"


def test_the_pipeline_reads_the_event_logs_of_both_routers_and_no_key_of_pseudonyms() -> None:
    command = COMPOSE["services"]["run"]["command"]
    file = DEPLOY / "pipeline" / Path(command[-1]).name
    settings, _ = load_settings(file, tables={}, kinds=())
    logs = {
        COMPOSE["services"][name]["environment"][f"TOCSIN_{name.upper()}_EVENT_LOG"]
        for name in ("smp", "ntf")
    }
    assert set(settings.events) == logs
    assert settings.master == "spark://spark-master:7077"
    assert settings.spark["spark.cores.max"] == "2"
    for name in ("run", "spark-worker"):
        assert mounted(name)["/var/opt/events"] == "events:ro"
        assert mounted(name)[settings.lake] == "lake"
    for name in SPARK_SERVICES:
        assert not {"pseudonym-keys", "smp-data", "ntf-data", "smp-config"} & {
            each.partition(":")[0] for each in mounted(name).values()
        }
    assert mounted("smp")["/var/opt/pseudonym-keys"] == mounted("ntf")["/var/opt/pseudonym-keys"]


def test_the_image_makes_every_folder_that_a_volume_needs() -> None:
    made = (DEPLOY / "Dockerfile").read_text()
    for name in ("smp", "ntf", "ntf-2", *SPARK_SERVICES):
        for place, source in mounted(name).items():
            assert source.startswith(".") or f" {place}" in made, place


def test_prometheus_asks_where_the_containers_answer() -> None:
    settings = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    targets = {
        target
        for job in settings["scrape_configs"]
        for static in job["static_configs"]
        for target in static["targets"]
    }
    told = {
        f"{name}:{COMPOSE['services'][name]['environment'][f'TOCSIN_{name.upper()}_PROMETHEUS_PORT']}"
        for name in ("smp", "ntf")
    } | {f"{name}:{port}" for name, port in further_instances()}
    pipeline, _ = load_settings(DEPLOY / "pipeline" / "pipeline.toml", tables={}, kinds=())
    assert pipeline.prometheus_host == "0.0.0.0"  # noqa: S104 - inside the containers' network
    assert targets == told | {f"run:{pipeline.prometheus_port}"}
    for file in settings["rule_files"]:
        assert (DEPLOY / "prometheus" / file).exists()


def further_instances() -> list[tuple[str, str]]:
    """Instances of the profile `fleet`, and the ports of their metrics."""
    return [
        (name, service["environment"]["TOCSIN_NTF_PROMETHEUS_PORT"])
        for name, service in COMPOSE["services"].items()
        if service.get("profiles") == ["fleet"] and service.get("command") == ["ntf", "start"]
    ]


def test_the_containers_of_a_fleet_share_what_they_must_and_nothing_else() -> None:
    first = COMPOSE["services"]["ntf"]
    assert first["environment"]["TOCSIN_NTF_FLEET"] == "${NTF_FLEET:-off}"
    [(name, port)] = further_instances()
    other = COMPOSE["services"][name]
    assert not other["ports"]  # the balancer has the port
    differing = {key for key, value in first["environment"].items() if other["environment"][key] != value}
    assert differing == {"TOCSIN_NTF_EVENT_LOG"}
    config, store, keys = (
        "/etc/opt/simplex-notifications",
        "/var/opt/simplex-notifications",
        "/var/opt/pseudonym-keys",
    )
    assert mounted(name)[config] == f"{mounted('ntf')[config]}:ro"
    assert mounted(name)[keys] == mounted("ntf")[keys]
    assert mounted(name)[store] != mounted("ntf")[store]

    balancer = COMPOSE["services"]["balancer"]
    assert balancer["profiles"] == ["fleet"]
    assert balancer["depends_on"] == ["ntf", name]
    file = (DEPLOY / "haproxy" / "haproxy.cfg").read_text()
    assert re.findall(r"^    server \w+ (\S+)$", file, flags=re.MULTILINE) == ["ntf:443", f"{name}:443"]
    [bound] = re.findall(r"bind :(\d+)", file)
    assert balancer["ports"] == [f"443:{bound}"]
    assert f"check port {port} " in file
    assert f"option httpchk GET {READY_PATH}\n" in file


def test_what_containers_mount_is_there() -> None:
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).is_dir(), source


def test_the_image_copies_what_there_is() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), source
    assert any(line == "USER tocsin" for line in lines)
