"""`tocsin doctor`: what is wrong with an installation?"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.errors import ConfigError

if TYPE_CHECKING:
    from tocsin.doctor.findings import Finding

NAME = "doctor"
SUMMARY = "look at an installation and say what is wrong"
DESCRIPTION = (
    "Looks at routers that should be running: certificates and their expiry, keys and who may read them, ports, "
    "database, push provider, SMP routers, event log, pipeline, clock and disk. Says in plain words what is wrong and "
    "what to do. Changes nothing, and shows no secret and no id. Looks in the usual folders if none is named. Settings "
    "that a router got in its environment must be in the doctor's, too. Exits with 1 if something is bad."
)
EXAMPLE = "tocsin doctor --ntf-config /etc/opt/simplex-notifications --online"

_STYLES: Final = {"ok": "green", "warn": "yellow", "bad": "bold red", "skipped": "dim"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--smp-config", type=Path, metavar="FILE", help="settings of an SMP router, or their folder"
    )
    parser.add_argument(
        "--ntf-config", type=Path, metavar="FILE", help="settings of an NTF router, or their folder"
    )
    parser.add_argument("--up", type=Path, metavar="DIR", help="the folder of `tocsin up`")
    parser.add_argument("--lake", type=Path, metavar="DIR", help="folder of the pipeline's tables")
    parser.add_argument(
        "--online",
        action="store_true",
        help="also ask push providers, with a push to a device that does not exist",
    )
    parser.add_argument(
        "--routers", type=int, default=10, metavar="N", help="how many SMP routers to try (default 10)"
    )
    parser.add_argument(
        "--timeout", type=float, default=10.0, metavar="SECONDS", help="for each connection (default 10)"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(options: argparse.Namespace) -> int:
    if not options.timeout > 0:
        raise ConfigError(f"--timeout {options.timeout}: more than 0 seconds")
    if options.routers < 0:
        raise ConfigError(f"--routers {options.routers}: 0 or more")
    # Other commands start faster without these.
    from tocsin.doctor.examination import examine
    from tocsin.doctor.findings import Status, Surroundings, worst
    from tocsin.doctor.installations import find_installation

    logging.getLogger("tocsin").addHandler(logging.NullHandler())  # what is wrong is said by the findings
    installation = find_installation(options.smp_config, options.ntf_config, options.up, options.lake)
    around = Surroundings(timeout=options.timeout, most_routers=options.routers, online=options.online)
    findings = asyncio.run(examine(installation, around, os.environ))
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
