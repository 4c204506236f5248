"""The whole examination: every router, the pipeline and the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tocsin.doctor.certificates import (
    CertificateFiles,
    credentials_found,
    key_file_findings,
    validity_findings,
)
from tocsin.doctor.findings import DoctorSettings, Finding, bad
from tocsin.doctor.freshness import event_log_findings, pipeline_findings
from tocsin.doctor.installations import FoundRouter, Installation
from tocsin.doctor.machine import clock_findings, disk_findings
from tocsin.doctor.ports import control_port_findings, metrics_findings, router_port_findings
from tocsin.doctor.push import push_findings
from tocsin.doctor.stores import ntf_store_findings, smp_store_findings
from tocsin.errors import ConfigError
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.operate.settings.problems import problems_of
from tocsin.protocol.addresses import Scheme
from tocsin.smp_router.settings.settings import SmpSettings

MACHINE: Final = "machine"
PIPELINE: Final = "pipeline"


async def examine(
    installation: Installation, doctor: DoctorSettings, environment: Mapping[str, str]
) -> list[Finding]:
    """Findings in reading order. Changes nothing."""
    findings: list[Finding] = []
    usable: list[tuple[FoundRouter, SmpSettings | NtfSettings]] = []
    for router in installation.routers:
        loaded, found = _settings_of(router, environment)
        if loaded is not None:
            usable.append((router, loaded))
            found += await _router_findings(router, loaded, doctor)
        findings += _part(router.name, found)
    folders: dict[str, Path | None] = {}
    for router, each in usable:
        folders[f"{router.name}'s store"] = each.store
        folders[f"{router.name}'s event log"] = each.event_log
    event_logs = [each.event_log for _, each in usable if each.event_log is not None]
    if installation.lake is not None or event_logs:
        findings += _part(PIPELINE, pipeline_findings(installation.lake, doctor, event_logs))
        folders["pipeline's tables"] = installation.lake
    written = [path for each in event_logs for path in each.glob("*.jsonl")]
    machine = [*clock_findings(doctor, written), *disk_findings(doctor, folders)]
    return findings + _part(MACHINE, machine)


def _part(name: str, findings: Iterable[Finding]) -> list[Finding]:
    return [replace(finding, part=name) for finding in findings]


def _settings_of(
    router: FoundRouter, environment: Mapping[str, str]
) -> tuple[SmpSettings | NtfSettings | None, list[Finding]]:
    try:
        return router.settings.load(router.file, environment, router.overrides), []
    except ConfigError as error:
        step = f"correct it, then run `tocsin {router.kind} config check --config {router.file}`"
        return None, [bad("settings", problem, step) for problem in problems_of(error)]


async def _router_findings(
    router: FoundRouter, settings: SmpSettings | NtfSettings, doctor: DoctorSettings
) -> list[Finding]:
    files = CertificateFiles(router.kind, settings.credentials)
    if isinstance(settings, NtfSettings):
        files = replace(
            files,
            certificate_file=settings.certificate_file,
            key_file=settings.private_key_file,
            authority_file=settings.authority_file,
        )
    credentials, findings = credentials_found(files)
    if credentials is not None:
        findings += validity_findings(credentials, files, doctor.now())
    findings += key_file_findings(files, router.file)
    scheme = Scheme.SMP if router.kind == "smp" else Scheme.NTF
    passwords = (settings.control_port_admin_password, settings.control_port_user_password)
    store = (
        ntf_store_findings(settings, doctor)
        if isinstance(settings, NtfSettings)
        else smp_store_findings(settings, doctor)
    )
    answers = await asyncio.gather(
        router_port_findings(scheme, settings.hosts, settings.ports, credentials, doctor.timeout),
        control_port_findings(settings.control_port, passwords, doctor.timeout),
        metrics_findings(settings.prometheus_host, settings.prometheus_port, doctor.timeout),
        store,
    )
    for found in answers:
        findings += found
    if isinstance(settings, NtfSettings):
        findings += await push_findings(settings, doctor)
    return findings + list(event_log_findings(settings, doctor))
