"""`tocsin ntf repair`: does what a plan of `tocsin pipeline reconcile` says."""

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

from tocsin.cli.ntf.files import add_config_argument, settings_of
from tocsin.cli.routers.store_transfers import progress_bar
from tocsin.errors import ConfigError
from tocsin.events.repair_plans import RepairAction, RepairEntry, read_plan
from tocsin.ntf_router.offline_events import offline_events
from tocsin.ntf_router.opened_store import data_folder, opened_store
from tocsin.ntf_router.repairs import CAUSE, Verdict, apply_plan
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.logs.store_files import read_ntf_store

NAME = "repair"
SUMMARY = "apply a plan of `tocsin pipeline reconcile`"
DESCRIPTION = (
    "Subscribes queues again, lets devices recreate them, or removes subscriptions, as the plan says. Each is first "
    "compared with the store: what has changed since is skipped and counted, so a plan may be applied twice. A folder "
    "of logs is repaired while its router is stopped, PostgreSQL at any time; a running router subscribes again when "
    "it connects next, or at once by the control port's `resubscribe`."
)
EXAMPLE = "tocsin ntf repair tocsin-repair.jsonl --dry-run"

_WORDS: Final = {
    Verdict.APPLY: "done",
    Verdict.ALREADY: "so already",
    Verdict.CHANGED: "skipped: changed since",
    Verdict.GONE: "skipped: gone",
    Verdict.REPORTED: "for the SMP router's operator",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", type=Path, metavar="PLAN", help="that tocsin pipeline reconcile wrote")
    add_config_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done and change nothing")


def run(options: argparse.Namespace) -> int:
    settings, plan = settings_of(options), read_plan(options.plan)
    if settings.store_kind is StoreKind.MEMORY and not settings.store_log:
        raise ConfigError("the router keeps its store in memory only: restart it, and all is subscribed anew")
    counted = asyncio.run(_repair(settings, plan, dry_run=options.dry_run))
    if options.json:
        json.dump({"dry_run": options.dry_run, "entries": len(plan), **_figures(counted)}, sys.stdout)
        sys.stdout.write("\n")
        return 0
    print(f"{len(plan)} entries{', of which nothing was applied (dry run)' if options.dry_run else ''}")
    for (action, verdict), count in sorted(counted.items()):
        words = "to be done" if verdict is Verdict.APPLY and options.dry_run else _WORDS[verdict]
        print(f"  {action:<12} {count:>10,}  {words}")
    return 0


async def _repair(
    settings: NtfSettings, plan: Sequence[RepairEntry], *, dry_run: bool
) -> Counter[tuple[RepairAction, Verdict]]:
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


def _figures(counted: Counter[tuple[RepairAction, Verdict]]) -> dict[str, int]:
    return {f"{action}_{verdict}": count for (action, verdict), count in sorted(counted.items())}
