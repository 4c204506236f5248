"""`tocsin doctor`: examines an installation and prints its findings."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.cli.terminal.option_types import count, lake_folder, seconds

if TYPE_CHECKING:
    from tocsin.doctor.findings import Finding

NAME = "doctor"
SUMMARY = "examine an installation and explain what is wrong"
DESCRIPTION = (
    "Examines routers that should be running: certificates and their expiry, keys and their permissions, ports, "
    "database, push provider, SMP routers, event log, pipeline, clock and disk. Explains each problem and what to do. "
    "Changes nothing and shows no secrets or ids. Without options it looks in the default folders. If a router gets "
    "settings from environment variables, set the same variables here. Exits with 1 if something is bad."
)
EXAMPLE = "tocsin doctor --folder /etc/opt/simplex-notifications --online"

_STYLES: Final = {"ok": "green", "warn": "yellow", "bad": "bold red", "skipped": "dim"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--folder",
        "--up",
        type=Path,
        action="append",
        default=[],
        help="the folder of a router, or of `tocsin up`; may be repeated (default: the usual folders)",
    )
    parser.add_argument(
        "--smp-config", type=Path, metavar="FILE", help="the settings file of an SMP router, or its folder"
    )
    parser.add_argument(
        "--ntf-config", type=Path, metavar="FILE", help="the settings file of an NTF router, or its folder"
    )
    parser.add_argument(
        "--lake",
        metavar="PLACE",
        help="the folder of the pipeline's tables (default: tocsin-lake, if it is there)",
    )
    parser.add_argument(
        "--online",
        action="store_true",
        help="also test push providers with a push to a device that does not exist",
    )
    parser.add_argument(
        "--routers", type=count, default=10, metavar="N", help="number of SMP routers to try (default: 10)"
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="time limit of each connection (default: 10)",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(options: argparse.Namespace) -> int:
    # Other commands start faster without these.
    from tocsin.doctor.examination import examine
    from tocsin.doctor.findings import DoctorSettings, Status, worst
    from tocsin.doctor.installations import NamedPlaces, find_installation

    logging.getLogger("tocsin").addHandler(logging.NullHandler())  # the findings report every problem
    named = NamedPlaces(options.folder, options.smp_config, options.ntf_config, lake_folder(options.lake))
    doctor = DoctorSettings(timeout=options.timeout, most_routers=options.routers, online=options.online)
    findings = asyncio.run(examine(find_installation(named), doctor, os.environ))
    if options.json:
        fields = [{name: getattr(each, name) for name in each.__slots__} for each in findings]
        print(json.dumps({"status": worst(findings), "findings": fields}, indent=2))
    else:
        _show(findings)
    return ExitCode.WRONG if worst(findings) is Status.BAD else ExitCode.OK


def _show(findings: list[Finding]) -> None:
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False, markup=False)
    part = ""
    for each in findings:
        if each.part != part:
            part = each.part
            console.print(part, style="bold")
        console.print(f"  {each.status:7}  {each.subject}: {each.text}", style=_STYLES[each.status])
        if each.next_step:
            console.print(f"           → {each.next_step}")
    counts = {status: sum(each.status == status for each in findings) for status in _STYLES}
    console.print(", ".join(f"{count} {status}" for status, count in counts.items() if count))
