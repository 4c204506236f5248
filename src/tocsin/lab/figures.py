"""The figures that `tocsin up` shows: the accounting of the NTF router and of the pipeline."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from tocsin.lab.phones import Arrival
from tocsin.ntf_router.settings.settings import DeliveryEngine
from tocsin.operate.http_client import get_page
from tocsin.operate.operator_pages import METRICS_PATH
from tocsin.pipeline.lake.table_files import rows_of_days, sums_of
from tocsin.pipeline.report.figures import DeliveryAccount
from tocsin.pipeline.schemas.hourly import ACCOUNT
from tocsin.web.engines_view import INLINE, SPARK
from tocsin.web.metric_readings import MetricReadings
from tocsin.web.operate_reader import JOB_AWAY, scrape

ENGINES: Final = {INLINE: "the router", SPARK: "Spark"}
MOST_DAYS: Final = 10_000
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


async def last_account(
    read: Callable[[], Awaitable[DeliveryAccount]], patience: float, pause: float = 0.5
) -> DeliveryAccount:
    """Read the accounting until nothing is pending, and nothing has come since the last look.

    That a message has arrived does not mean that its notification has: a phone that an earlier push woke fetches it,
    too. So stop what notifications come from first.
    """
    account = await read()
    with suppress(TimeoutError):
        async with asyncio.timeout(patience):
            while True:
                await asyncio.sleep(pause)
                before, account = account, await read()
                if account == before and not account.pending:
                    break
    return account


async def job_works(host: str, port: int) -> bool:
    """Whether the router says that the job answers it."""
    try:
        readings = MetricReadings.parse(await scrape(host, port))
    except (OSError, TimeoutError):
        return False
    return readings.total(JOB_AWAY) == 0


def live_table(account: DeliveryAccount, sent: int, last: Sequence[Arrival], pipeline: str) -> Table:
    table = Table(title="Tocsin: notifications (Ctrl-C stops)", title_justify="left", show_header=False)
    table.add_row("messages sent", f"{sent:,}")
    for name, value in _rows(account):
        table.add_row(name, value)
    table.add_row("last woken", ", ".join(each.phone for each in last) or "nobody yet")
    table.add_row("pipeline", pipeline)
    return table


@dataclass(frozen=True, slots=True)
class EngineAccount:
    """The figures of both engines."""

    chosen: DeliveryEngine
    pushes: Mapping[str, int]
    """Pushes at the provider since this start, by engine."""
    ended: Mapping[str, int]
    """Accepted and failed notifications in the tables, by engine; empty is the name of none."""

    def wrong(self, pipeline: DeliveryAccount) -> str:
        if self.chosen is not DeliveryEngine.INLINE and not self.pushes.get(SPARK):
            return "Spark pushed nothing: find the cause in the log of the job `deliver`"
        if self.chosen is DeliveryEngine.BOTH and not self.pushes.get(INLINE):
            return "the router pushed nothing: find the cause in its log"
        if sum(self.ended.values()) != pipeline.accepted + pipeline.failed:
            return "the ends by engine are not all ends: please report this"
        if self.pushes.get(SPARK) and not self.ended.get(SPARK):
            return "Spark pushed, but no event names it: please report this"
        return ""


def checked(
    console: Console,
    sent: int,
    missing: int,
    account: DeliveryAccount,
    pipeline: DeliveryAccount | None,
    engines: EngineAccount | None = None,
) -> int:
    """Print the accounting, and return the exit code: 0 if nothing is missing."""
    table = Table(title="Accounting", title_justify="left")
    for heading in ("", "NTF router", "pipeline"):
        table.add_column(heading, justify="right" if heading else "left")
    others = dict(_rows(pipeline)) if pipeline else {}
    for name, value in _rows(account):
        table.add_row(name, value, others.get(name, "off"))
    if engines is not None:
        table.add_section()
        for name in (INLINE, SPARK):
            table.add_row(f"pushed by {ENGINES[name]}", "", f"{engines.ended.get(name, 0):,}")
    console.print(table)
    wrong = _wrong(sent, missing, account, pipeline)
    if not wrong and engines is not None and pipeline is not None:
        wrong = engines.wrong(pipeline)
    if wrong:
        console.print(f"[red]{wrong}[/red]", highlight=False)
        return 1
    console.print(f"{sent} messages sent. All of them arrived after a push, and the accounting adds up.")
    if engines is not None:
        made = ", ".join(f"{ENGINES[name]} {engines.pushes.get(name, 0):,}" for name in (INLINE, SPARK))
        console.print(f"Pushes of messages at the provider: {made}.", highlight=False)
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


def engines_of_tables(lake: Path) -> dict[str, int]:
    """Accepted and failed notifications over all hours, by engine."""
    ended: Counter[str] = Counter()
    for row in rows_of_days(lake, "engines_hourly", MOST_DAYS):
        ended[row["engine"] or ""] += row["accepted"] + row["failed"]
    return dict(ended)


def account_of_tables(lake: Path) -> DeliveryAccount:
    """Sum the accounting over all hours in the tables."""
    return DeliveryAccount.of_terms(sums_of(lake, "funnel_hourly", ACCOUNT))
