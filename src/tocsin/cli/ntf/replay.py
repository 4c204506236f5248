"""`tocsin ntf replay`: what became of the notifications that `tocsin pipeline replay` misses."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tocsin.cli.ntf.files import add_config_argument, settings_of
from tocsin.cli.ntf.transfers import NtfEnds
from tocsin.errors import ConfigError
from tocsin.events.pseudonyms import PseudonymKeys, keys_folder
from tocsin.events.replay import (
    Overdue,
    ReplayAnswer,
    ReplayRequest,
    Waiting,
    answer_to,
    read_request,
)
from tocsin.ntf_router.opened_store import data_folder
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind
from tocsin.ntf_router.store.logs.store_files import read_ntf_store
from tocsin.operate.control_port import order_of_operator

NAME = "replay"
SUMMARY = "deliver notifications that came to no end, and name those that are lost"
DESCRIPTION = (
    "Looks in the store and in the event log for the notifications of a request of `tocsin pipeline replay`. Those "
    "that wait in the store are delivered: by a running router at once if its control port is set, otherwise when it "
    "starts. Those that are neither in the store nor came to an end are lost, and named by time, SMP host and hash. "
    "A folder of logs is read while its router is stopped, PostgreSQL at any time. Exit code 1: some are lost."
)
EXAMPLE = "tocsin ntf replay tocsin-replay.jsonl"

MOST_NAMED: Final = 20
ORDER: Final = "deliver-pending"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("request", type=Path, metavar="FILE", help="that tocsin pipeline replay wrote")
    add_config_argument(parser)
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    parser.add_argument("--dry-run", action="store_true", help="only look; nothing is delivered")


def run(options: argparse.Namespace) -> int:
    """1 if some are lost."""
    settings, request = settings_of(options), read_request(options.request)
    if settings.event_log is None:
        raise ConfigError("[TOCSIN] event_log is not set: the router has no pseudonyms to compare")
    answer, delivery = asyncio.run(_replay(settings, settings.event_log, request, dry_run=options.dry_run))
    if options.json:
        figures = {name: len(getattr(answer, name)) for name in ReplayAnswer.__slots__}
        lost = [_named(each) for each in answer.lost]
        json.dump({**figures, "delivery": delivery, "lost_ones": lost}, sys.stdout)
        sys.stdout.write("\n")
    else:
        _show(answer, delivery)
    return 1 if answer.lost else 0


async def _replay(
    settings: NtfSettings, event_log: Path, request: ReplayRequest, *, dry_run: bool
) -> tuple[ReplayAnswer, str]:
    keys = PseudonymKeys(
        keys_folder(event_log, settings.event_log_keys), settings.event_log_retention_days, time.time
    )
    waiting = [Waiting(*each) async for each in _pending(settings)]
    answer = answer_to(request, waiting, keys, event_log)
    if not answer.waiting or dry_run:
        return answer, "nothing to do" if not answer.waiting else "not tried (dry run)"
    port, password = settings.control_port, settings.control_port_admin_password
    said = await order_of_operator(port, password, ORDER) if port and password else None
    if said is not None:
        return answer, f"the running router delivers them: {said}"
    return answer, f"the router delivers them when it starts, or by {ORDER} at its control port"


async def _pending(settings: NtfSettings) -> AsyncIterator[tuple[bytes, bytes, float]]:
    if settings.store_kind is StoreKind.MEMORY:
        store, _ = read_ntf_store(data_folder(settings), keep_broken_lines=False)
        last = {each.subscription_id: each for each in store.all_notifications() if each.pending}
        for subscription in store.all_subscriptions():
            if (each := last.get(subscription.subscription_id)) is not None:
                yield subscription.queue.notifier_id, each.nonce, each.received_at
        return
    from tocsin.ntf_router.store.postgres.transfer import pending_in_database

    ends = NtfEnds.of(settings)
    async with ends.database() as url:
        async for waiting in pending_in_database(url, ends.schema):
            yield waiting


def _show(answer: ReplayAnswer, delivery: str) -> None:
    print(f"{len(answer.waiting):>10,}  wait in the store: {delivery}")
    print(f"{len(answer.ended):>10,}  came to an end since the tables were made")
    print(f"{len(answer.erased):>10,}  are of days whose keys are erased: nobody can tell")
    print(f"{len(answer.lost):>10,}  are LOST" + (":" if answer.lost else ""))
    for each in answer.lost[:MOST_NAMED]:
        named = _named(each)
        print(f"            {named['received_at']}  {named['smp_host']}  {named['notification']}")
    if len(answer.lost) > MOST_NAMED:
        hosts = Counter(each.smp_host for each in answer.lost).most_common(5)
        print(f"            … mostly of {', '.join(f'{host} ({count})' for host, count in hosts)}")


def _named(each: Overdue) -> dict[str, str]:
    at = datetime.fromtimestamp(each.received_at / 1_000_000, UTC)
    name = f"{each.period}:{each.high & (1 << 64) - 1:016x}{each.low & (1 << 64) - 1:016x}"
    return {"received_at": at.isoformat(), "smp_host": each.smp_host, "notification": name}
