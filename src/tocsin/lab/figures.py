"""The figures that `tocsin up` shows: the accounting of the NTF router and of the pipeline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from tocsin.lab.phones import Arrival
from tocsin.operate.http_client import get_page
from tocsin.operate.operator_pages import METRICS_PATH
from tocsin.pipeline.lake.table_files import sums_of
from tocsin.pipeline.report.figures import DeliveryAccount
from tocsin.pipeline.schemas.hourly import ACCOUNT

METRICS_SECONDS: Final = 5.0
_METRIC: Final = re.compile(r"^simplex_ntf_accounting_(\w+?)(?:\{[^}]*\})? ([0-9.e+-]+)$", re.MULTILINE)


async def read_account(host: str, port: int) -> DeliveryAccount:
    """Read the router's metrics; empty while it does not answer."""
    try:
        _, text = await get_page(host, port, METRICS_PATH, METRICS_SECONDS)
    except (OSError, TimeoutError):
        return DeliveryAccount()
    totals: dict[str, int] = {}
    for name, value in _METRIC.findall(text):
        totals[name] = totals.get(name, 0) + int(float(value))
    return DeliveryAccount.of_terms(totals)


def live_table(account: DeliveryAccount, sent: int, last: Sequence[Arrival], pipeline: str) -> Table:
    table = Table(title="Tocsin: notifications (Ctrl-C stops)", title_justify="left", show_header=False)
    table.add_row("messages sent", f"{sent:,}")
    for name, value in _rows(account):
        table.add_row(name, value)
    table.add_row("last woken", ", ".join(each.phone for each in last) or "nobody yet")
    table.add_row("pipeline", pipeline)
    return table


def checked(
    console: Console, sent: int, missing: int, account: DeliveryAccount, pipeline: DeliveryAccount | None
) -> int:
    """Print the accounting, and return the exit code: 0 if nothing is missing."""
    table = Table(title="Accounting", title_justify="left")
    for heading in ("", "NTF router", "pipeline"):
        table.add_column(heading, justify="right" if heading else "left")
    others = dict(_rows(pipeline)) if pipeline else {}
    for name, value in _rows(account):
        table.add_row(name, value, others.get(name, "off"))
    console.print(table)
    wrong = _wrong(sent, missing, account, pipeline)
    if wrong:
        console.print(f"[red]{wrong}[/red]", highlight=False)
        return 1
    console.print(f"{sent} messages sent. All of them arrived after a push, and the accounting adds up.")
    return 0


def _wrong(sent: int, missing: int, account: DeliveryAccount, pipeline: DeliveryAccount | None) -> str:
    if missing:
        return f"{missing} of {sent} messages did not arrive: find the cause in the routers' logs"
    if account.difference or account.pending:
        return "the NTF router's accounting does not add up: please report this"
    if pipeline is not None and (
        pipeline.difference or pipeline.pending or pipeline.received > account.received
    ):
        return (
            "the pipeline's accounting differs from the router's: `tocsin pipeline report` shows which hours"
        )
    return ""


def _rows(account: DeliveryAccount) -> list[tuple[str, str]]:
    return [(name, f"{getattr(account, name):,}") for name in (*ACCOUNT, "difference")]


def account_of_tables(lake: Path) -> DeliveryAccount:
    """Sum the accounting over all hours in the tables."""
    return DeliveryAccount.of_terms(sums_of(lake, "funnel_hourly", ACCOUNT))
