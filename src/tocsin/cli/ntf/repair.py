"""`tocsin ntf repair`: applies a plan of `tocsin pipeline reconcile`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from tocsin.cli.ntf.router_kind import NTF
from tocsin.cli.routers.router_kind import add_router_arguments
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.cli.terminal.progress import progress_bar
from tocsin.errors import ConfigError
from tocsin.events.repair_plans import RepairAction, RepairEntry, read_plan
from tocsin.ntf_router.opened_store import data_folder, opened_store
from tocsin.ntf_router.repairs import CAUSE, RepairOutcome, apply_plan, offline_events
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.logs.store_files import read_ntf_store

NAME = "repair"
SUMMARY = "apply a plan of `tocsin pipeline reconcile`"
DESCRIPTION = (
    "Subscribes queues again, lets devices recreate them, or removes subscriptions, as the plan says. Each entry is "
    "first compared with the store. Entries that have changed since are skipped and counted, so a plan can be applied "
    "twice. Stop the router before repairing a folder of logs; PostgreSQL can be repaired at any time. A running "
    "router subscribes again at its next connection, or at once with `resubscribe` at the control port."
)
EXAMPLE = "tocsin ntf repair tocsin-repair.jsonl --dry-run"

_OUTCOME_TEXTS: Final = {
    RepairOutcome.APPLY: "done",
    RepairOutcome.ALREADY: "already as planned",
    RepairOutcome.CHANGED: "skipped: changed since the export",
    RepairOutcome.GONE: "skipped: gone",
    RepairOutcome.REPORTED: "for the SMP router's operator",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "plan", type=Path, metavar="PLAN", help="the file that `tocsin pipeline reconcile` wrote"
    )
    add_router_arguments(parser, NTF)
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done; change nothing")


def run(options: argparse.Namespace) -> int:
    settings, plan = NTF.load_settings(options), read_plan(options.plan)
    if settings.store_kind is StoreKind.MEMORY and not settings.store_log:
        raise ConfigError(
            "the router keeps its store in memory only, so there is nothing to repair: restart the router"
        )
    counted = asyncio.run(_repair(settings, plan, dry_run=options.dry_run))
    if options.json:
        json.dump({"dry_run": options.dry_run, "entries": len(plan), **_figures(counted)}, sys.stdout)
        sys.stdout.write("\n")
        return ExitCode.OK
    print(f"{len(plan)} entries{', nothing applied (dry run)' if options.dry_run else ''}")
    for (action, outcome), count in sorted(counted.items()):
        text = "to be done" if outcome is RepairOutcome.APPLY and options.dry_run else _OUTCOME_TEXTS[outcome]
        print(f"  {action:<12} {count:>10,}  {text}")
    return ExitCode.OK


async def _repair(
    settings: NtfSettings, plan: Sequence[RepairEntry], *, dry_run: bool
) -> Counter[tuple[RepairAction, RepairOutcome]]:
    with progress_bar("Repairing", [len(plan)]) as progress:
        if dry_run:
            settings = replace(settings, event_log=None)
        async with _store(settings, dry_run) as store, offline_events(settings, CAUSE) as events:
            store.report_settled_to(events.settled)
            return await apply_plan(
                store, plan, events, now=int(time.time()), dry_run=dry_run, progress=progress
            )


@asynccontextmanager
async def _store(settings: NtfSettings, dry_run: bool) -> AsyncIterator[NtfStore]:
    """A dry run leaves the files of a folder as they are."""
    if dry_run and settings.store_kind is StoreKind.MEMORY:
        yield read_ntf_store(data_folder(settings), keep_broken_lines=False)[0]
        return
    async with opened_store(settings) as store:
        yield store


def _figures(counted: Counter[tuple[RepairAction, RepairOutcome]]) -> dict[str, int]:
    return {f"{action}_{outcome}": count for (action, outcome), count in sorted(counted.items())}
