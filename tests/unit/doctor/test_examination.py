"""`tocsin doctor`: routers that run, and each thing broken once."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.ntf_process import NtfFolders
from tests.doubles.routers import HOST
from tests.doubles.smp_process import SmpFolders
from tests.unit.doctor.cases import (
    GIBIBYTE,
    aged,
    by_subject,
    expired_identity,
    look,
    mode,
    reissue,
    statuses,
    surroundings,
)
from tocsin.cli.main import run
from tocsin.doctor import installations
from tocsin.doctor.findings import DiskSpace, Finding, Status, clock_is_synchronized, span, worst
from tocsin.doctor.freshness import pipeline_findings
from tocsin.doctor.installations import NamedPlaces, find_installation
from tocsin.doctor.machine import clock_findings, disk_findings
from tocsin.errors import ConfigError
from tocsin.pipeline.lake.status_files import write_status
from tocsin.smp_router.settings.files import SMP_FILE

DAY = 86_400.0


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TOCSIN_", "NTF_SERVER_", "APNS_KEY_")):
            monkeypatch.delenv(name)


@pytest.fixture
def smp(tmp_path: Path) -> SmpFolders:
    folders = SmpFolders(tmp_path / "smp")
    folders.store.chmod(0o700)
    return folders


def free_port() -> int:
    with socket.create_server((HOST, 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


async def test_a_router_that_runs_is_found_in_order(smp: SmpFolders, tmp_path: Path) -> None:
    events = tmp_path / "events"
    router = await smp.start(event_log=events, prometheus_port=0)
    try:
        ports: dict[str, Any] = {
            "port": router.port,
            "listen": HOST,
            "control_port": router.control_port,
            "prometheus_port": router.metrics_port,
        }
        found = await look("smp", smp.config / "smp-server.ini", event_log=events, **ports)
        assert {each.subject: each.text for each in found.values() if each.status is Status.BAD} == {}
        port = f"port {router.port}"
        assert (
            statuses(found, "certificates", "permissions", port, "store", "metrics", "event log")
            == ["ok"] * 6
        )
        assert found["control port"].status is Status.WARN, "these settings have no password for it"
        with_password = await look(
            "smp", smp.config / "smp-server.ini", control_port_admin_password="hidden", **ports
        )
        assert with_password["control port"].status is Status.OK
        assert "hidden" not in repr(with_password)

        reissue(smp.config, began_days_ago=1, lasts_days=400)
        found = await look("smp", smp.config / "smp-server.ini", **ports)
        assert found[port].status is Status.WARN
        assert "restart the router" in found[port].next_step

        other = SmpFolders(tmp_path / "other")
        found = await look("smp", other.config / "smp-server.ini", **ports)
        assert found[port].status is Status.BAD
        assert "another router answers" in found[port].text
    finally:
        await router.kill()


async def test_ports_on_which_nothing_answers(smp: SmpFolders) -> None:
    port = free_port()
    found = await look(
        "smp",
        smp.config / "smp-server.ini",
        port=port,
        listen=HOST,
        control_port=free_port(),
        prometheus_port=1,
    )
    assert statuses(found, f"port {port}", "control port", "metrics") == ["bad"] * 3
    assert "nothing answers" in found[f"port {port}"].text
    assert "tocsin smp start" in found[f"port {port}"].next_step
    found = await look("smp", smp.config / "smp-server.ini", port=0, control_port=0, prometheus_port=0)
    assert statuses(found, "port 0", "control port", "metrics") == ["skipped"] * 3


async def test_a_port_with_something_else_behind_it(smp: SmpFolders) -> None:
    with socket.create_server((HOST, 0)) as mute:
        port = mute.getsockname()[1]
        doctor = surroundings(timeout=0.3)
        found = await look("smp", smp.config / "smp-server.ini", doctor, port=port, listen=HOST)
    assert found[f"port {port}"].status is Status.BAD


@pytest.mark.parametrize(
    ("began", "lasts", "status", "says"),
    [
        (10, 5, "bad", "the TLS certificate expired on "),
        (10, 20, "warn", "the TLS certificate expires on "),
        (-3, 20, "bad", "the TLS certificate becomes valid only on "),
        (10, 400, "ok", "is valid until"),
    ],
)
async def test_dates_of_certificates(
    began: float, lasts: float, status: str, says: str, smp: SmpFolders
) -> None:
    reissue(smp.config, began_days_ago=began, lasts_days=lasts)
    found = (await look("smp", smp.config / "smp-server.ini", port=0))["certificates"]
    assert found.status == status
    assert says in found.text
    assert ("`tocsin smp cert`" in found.next_step) is (status != "ok" and began > 0)


async def test_an_expired_identity(smp: SmpFolders) -> None:
    expired_identity(smp.config)
    found = (await look("smp", smp.config / "smp-server.ini", port=0))["certificates"]
    assert found.status is Status.BAD
    assert "the identity certificate expired" in found.text
    assert "with a new identity" in found.next_step


async def test_certificates_that_do_not_fit(smp: SmpFolders, tmp_path: Path) -> None:
    other = SmpFolders(tmp_path / "other")
    kept = {name: (smp.config / name).read_bytes() for name in ("server.key", "ca.crt", "fingerprint")}

    async def certificates() -> Finding:
        return (await look("smp", smp.config / "smp-server.ini", port=0))["certificates"]

    (smp.config / "server.key").write_bytes((other.config / "server.key").read_bytes())
    found = await certificates()
    assert found.status is Status.BAD
    assert "does not belong to the certificate" in found.text
    assert "tocsin smp cert" in found.next_step
    (smp.config / "server.key").write_bytes(kept["server.key"])

    (smp.config / "ca.crt").write_bytes((other.config / "ca.crt").read_bytes())
    assert "fingerprint is not that" in (await certificates()).text
    (smp.config / "fingerprint").write_bytes((other.config / "fingerprint").read_bytes())
    assert "clients will refuse the certificates" in (await certificates()).text

    (smp.config / "server.crt").unlink()
    found = await certificates()
    assert "the file is missing" in found.text
    assert "tocsin smp cert" in found.next_step


async def test_files_that_others_may_read(smp: SmpFolders) -> None:
    config = smp.config / "smp-server.ini"
    with mode(smp.config / "server.key", 0o644), mode(smp.config / "ca.key", 0o640), mode(config, 0o604):
        found = await look("smp", config, port=0)
    assert statuses(found, "TLS key", "identity key", "settings") == ["bad", "warn", "bad"]
    assert found["TLS key"].next_step == f"chmod 600 {smp.config / 'server.key'}"
    with mode(smp.store, 0o755):
        assert (await look("smp", config, port=0))["store"].status is Status.WARN


async def test_a_store_that_is_not_there_or_forgets(smp: SmpFolders) -> None:
    config = smp.config / "smp-server.ini"
    found = await look("smp", config, port=0, store_path="/nowhere/at/all")
    assert found["store"].status is Status.BAD
    found = await look("smp", config, port=0, store_log_enable="off")
    assert found["store"].status is Status.WARN
    assert "memory only" in found["store"].text


async def test_wrong_settings_are_told_and_the_rest_is_looked_at(smp: SmpFolders) -> None:
    config = smp.config / "smp-server.ini"
    config.write_text("[TRANSPORT]\nprot: 1\nport: x\n")
    found = await look("smp", config)
    assert found["settings"].status is Status.BAD
    assert "config check" in found["settings"].next_step
    assert found["clock"].status is Status.OK


@pytest.mark.parametrize(
    ("free", "status"),
    [(100 << 20, "bad"), (GIBIBYTE, "warn"), (4 * GIBIBYTE, "warn"), (50 * GIBIBYTE, "ok")],
)
def test_space_on_a_disk(free: int, status: str, tmp_path: Path) -> None:
    doctor = surroundings(disk_space=lambda _path: DiskSpace(100 * GIBIBYTE, free))
    [found] = disk_findings(doctor, {"store": tmp_path / "not" / "made", "log": tmp_path, "none": None})
    assert found.status == status
    assert found.subject == "disk of the store, log"


def test_a_disk_that_cannot_be_asked(tmp_path: Path) -> None:
    def gone(_path: Path) -> DiskSpace:
        raise OSError(5, "Input/output error")

    [found] = disk_findings(surroundings(disk_space=gone), {"store": tmp_path})
    assert found.status is Status.BAD
    assert "Input/output error" in found.text


@pytest.mark.parametrize(("answer", "status"), [(True, "ok"), (False, "warn"), (None, "skipped")])
def test_what_the_system_says_of_its_clock(answer: bool | None, status: str) -> None:
    [found] = clock_findings(surroundings(clock_is_synchronized=lambda: answer), [Path("/nowhere")])
    assert found.status == status


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    file = tmp_path / "events-1.jsonl"
    file.write_text("")
    [found] = clock_findings(surroundings(now=lambda: time.time() - 2 * DAY), [file])
    assert found.status is Status.BAD
    assert "in the future" in found.text


def test_the_kernel_can_be_asked_for_its_clock() -> None:
    assert clock_is_synchronized() in (True, False, None)


async def test_an_event_log_that_does_not_go_on(smp: SmpFolders, tmp_path: Path) -> None:
    config, events, keys = smp.config / "smp-server.ini", tmp_path / "events", tmp_path / "events-keys"

    async def event_log() -> Finding:
        return (await look("smp", config, port=0, event_log=events))["event log"]

    assert (await event_log()).status is Status.WARN
    events.mkdir()
    assert (await event_log()).text == "no events yet"
    (events / "events-00000000000000000001-1-1.jsonl").write_text("{}\n")
    assert (await event_log()).status is Status.OK
    aged(events / "events-00000000000000000001-1-1.jsonl", 3 * DAY)
    found = await event_log()
    assert found.status is Status.WARN
    assert "3 days ago" in found.text
    aged_open = events / ".open-00000000000000000002-1-2.jsonl"
    aged_open.write_text("{}\n")
    assert (await event_log()).status is Status.WARN, "a segment that was just begun"
    aged(aged_open, 3600)
    found = await event_log()
    assert found.status is Status.BAD
    assert "are not published" in found.text
    aged_open.unlink()
    keys.mkdir(mode=0o755)
    found = await event_log()
    assert found.status is Status.BAD
    assert "pseudonym keys" in found.text
    keys.chmod(0o2770)  # for a group, on purpose
    assert (await event_log()).status is Status.WARN
    keys.chmod(0o2775)
    assert (await event_log()).status is Status.BAD


def test_tables_that_do_not_go_on(tmp_path: Path) -> None:
    lake, events = tmp_path / "lake", tmp_path / "events"
    events.mkdir()
    (events / "events-00000000000000000001-1-1.jsonl").write_text("{}\n")

    def found() -> dict[str, Finding]:
        return by_subject(pipeline_findings(lake, surroundings(), [events]))

    assert found()["tables"].status is Status.SKIPPED
    commits = lake / "events" / "_delta_log"
    commits.mkdir(parents=True)
    assert by_subject(pipeline_findings(None, surroundings(), []))["tables"].status is Status.SKIPPED
    (commits / "00000000000000000001.json").write_text("{}")
    write_status(lake, "ingest", "done")
    assert statuses(found(), "tables", "job ingest") == ["ok", "ok"]
    aged(commits / "00000000000000000001.json", 2 * DAY)
    write_status(lake, "build", "failed", error="the disk is full\nTraceback")
    broken = found()
    assert statuses(broken, "tables", "job build") == ["bad", "bad"]
    assert "the events of the last 1 day are missing" in broken["tables"].text
    assert broken["job build"].text.endswith("the disk is full")
    write_status(lake, "deliver", "running")
    later = surroundings(now=lambda: time.time() + DAY)
    assert by_subject(pipeline_findings(lake, later, [events]))["job deliver"].status is Status.WARN
    (commits / "00000000000000000001.json").unlink()
    (commits / "00000000000000000001.json").parent.rmdir()
    assert found()["tables"].status is Status.WARN


def test_the_command_prints_words_or_json_and_its_exit_code_tells(
    smp: SmpFolders, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["doctor", "--smp-config", str(smp.config), "--timeout", "2"]
    capsys.readouterr()
    assert run(arguments) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("SMP router\n")
    assert "  bad      port 5223: nothing answers" in shown
    assert "           → start the router" in shown
    assert "machine\n" in shown
    assert run([*arguments, "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == "bad"
    assert {"part", "subject", "status", "text", "next_step"} == set(answer["findings"][0])


@pytest.mark.parametrize("option", [["--timeout", "0"], ["--routers", "-1"]])
def test_wrong_limits_are_refused(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(["doctor", *option])
    assert end.value.code == 2
    assert option[0] in capsys.readouterr().err


def test_without_an_installation_it_says_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(installations, "SMP_FILE", replace(SMP_FILE, usual_folder=tmp_path / "smp-etc"))
    monkeypatch.setenv("NTF_SERVER_CFG_PATH", str(tmp_path / "ntf-etc"))
    with pytest.raises(ConfigError, match="--smp-config"):
        find_installation(NamedPlaces())
    NtfFolders(tmp_path / "x")
    (tmp_path / "x" / "etc").rename(tmp_path / "ntf-etc")
    found = find_installation(NamedPlaces())
    assert [(each.kind, each.file.name) for each in found.routers] == [("ntf", "ntf-server.ini")]
    with pytest.raises(ConfigError, match="has no settings of a router"):
        find_installation(NamedPlaces([tmp_path]))


def test_the_folder_of_up_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "tocsin-up"
    folder.mkdir()
    (folder / "ports.json").write_text('{"smp": 1, "ntf": 2, "metrics": 3, "push": 4}')
    found = find_installation(NamedPlaces([folder]))
    assert [each.kind for each in found.routers] == ["smp", "ntf"]
    assert "port=2" in found.routers[1].overrides
    assert found.lake == folder / "lake"
    assert find_installation(NamedPlaces([folder], lake=tmp_path)).lake == tmp_path
    (folder / "ports.json").write_text("{")
    with pytest.raises(ConfigError, match=r"ports\.json is unreadable"):
        find_installation(NamedPlaces([folder]))


def test_times_are_told_in_words() -> None:
    assert [span(each) for each in (5, 60, 7200, -DAY, 2.5 * DAY)] == [
        "5 s",
        "1 minute",
        "2 hours",
        "1 day",
        "2 days",
    ]
    assert worst([]) is Status.OK
