"""`tocsin self-check`: connects a client to a listener over TLS on this machine, in every protocol version."""

from __future__ import annotations

import argparse
import asyncio
import ssl

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.crypto import hsalsa20
from tocsin.crypto.credentials import CertificateAlgorithm
from tocsin.lab.loopback_check import LoopbackCase, LoopbackResult, cases, check

NAME = "self-check"
SUMMARY = "check on this machine that every protocol version works"
DESCRIPTION = (
    "Starts an SMP and an NTF listener on loopback, with Ed25519 and with Ed448 certificates, connects a client over "
    "TLS for every protocol version, with and without ALPN and as a service, and verifies commands authorized by each "
    "kind of key. Exits with 1 if anything failed."
)
EXAMPLE = "tocsin self-check"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="print the table only if something failed")


def run(options: argparse.Namespace) -> int:
    console = Console()
    results = asyncio.run(_check_all(console))
    failed = [result for result in results if result.failure]
    if failed or not options.quiet:
        console.print(_table(results))
    for result in failed:
        console.print(f"{result.case}: {result.failure}", style="red")
    console.print(
        f"Python's {ssl.OPENSSL_VERSION}; HSalsa20 by {hsalsa20.PROVIDER}. "
        f"{len(results) - len(failed)} of {len(results)} connections work."
    )
    return ExitCode.WRONG if failed else ExitCode.OK


async def _check_all(console: Console) -> list[LoopbackResult]:
    return [await check(case) for case in track(list(cases()), "Connecting", console=console, transient=True)]


def _table(results: list[LoopbackResult]) -> Table:
    """One row for both kinds of certificate."""
    table = Table(title="Listener and client over TLS on this machine")
    table.add_column("protocol")
    table.add_column("version", justify="right")
    for heading in ("ALPN", "service", "blocks", "keys", *(f"{each.value}" for each in CertificateAlgorithm)):
        table.add_column(heading)
    rows: dict[tuple[str, ...], dict[CertificateAlgorithm, str]] = {}
    for result in results:
        text = "[red]failed[/red]" if result.failure else "[green]ok[/green]"
        rows.setdefault(_row(result.case, result), {})[result.case.algorithm] = text
    for row, texts in rows.items():
        table.add_row(*row, *(texts.get(algorithm, "") for algorithm in CertificateAlgorithm))
    return table


def _row(case: LoopbackCase, result: LoopbackResult) -> tuple[str, ...]:
    return (
        case.dialect.name,
        str(case.version),
        case.alpn or "none",
        "yes" if case.service else "",
        result.blocks,
        str(result.keys),
    )
