"""`tocsin self-check`: a listener and a client talk over TLS on this machine, in every protocol version."""

from __future__ import annotations

import argparse
import asyncio
import ssl

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tocsin.crypto import hsalsa20
from tocsin.crypto.credentials import CertificateAlgorithm
from tocsin.lab.loopback_check import Case, Finding, cases, check

NAME = "self-check"
SUMMARY = "check on this machine that every protocol version works"
DESCRIPTION = (
    "Starts an SMP and an NTF listener on loopback, with Ed25519 and with Ed448 certificates, connects a client over "
    "TLS for every protocol version, with and without ALPN and as a service, and has commands authorized by each "
    "kind of key verified. Exit code 1 if anything failed."
)
EXAMPLE = "tocsin self-check"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="print the table only if something failed")


def run(options: argparse.Namespace) -> int:
    console = Console()
    findings = asyncio.run(_check_all(console))
    failed = [finding for finding in findings if finding.failure]
    if failed or not options.quiet:
        console.print(_table(findings))
    for finding in failed:
        console.print(f"{finding.case}: {finding.failure}", style="red")
    console.print(
        f"Python's {ssl.OPENSSL_VERSION}; HSalsa20 by {hsalsa20.PROVIDER}. "
        f"{len(findings) - len(failed)} of {len(findings)} connections work."
    )
    return 1 if failed else 0


async def _check_all(console: Console) -> list[Finding]:
    return [await check(case) for case in track(list(cases()), "Connecting", console=console, transient=True)]


def _table(findings: list[Finding]) -> Table:
    """One row for both kinds of certificates."""
    table = Table(title="Listener and client over TLS on this machine")
    table.add_column("protocol")
    table.add_column("version", justify="right")
    for heading in ("ALPN", "service", "blocks", "keys", *(f"{each.value}" for each in CertificateAlgorithm)):
        table.add_column(heading)
    rows: dict[tuple[str, ...], dict[CertificateAlgorithm, str]] = {}
    for finding in findings:
        result = "[red]failed[/red]" if finding.failure else "[green]ok[/green]"
        rows.setdefault(_row(finding.case, finding), {})[finding.case.algorithm] = result
    for row, results in rows.items():
        table.add_row(*row, *(results.get(algorithm, "") for algorithm in CertificateAlgorithm))
    return table


def _row(case: Case, finding: Finding) -> tuple[str, ...]:
    return (
        case.dialect.name,
        str(case.version),
        case.alpn or "none",
        "yes" if case.service else "",
        finding.blocks,
        str(finding.keys),
    )
