"""`tocsin ntf replay`: finds the notifications that `tocsin pipeline replay` reports without an end."""

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

from tocsin.cli.ntf.router_kind import NTF
from tocsin.cli.routers.router_kind import add_router_arguments
from tocsin.cli.terminal.exit_codes import ExitCode
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
from tocsin.migrate.ntf_stores import opened_database, place_of
from tocsin.ntf_router.opened_store import data_folder
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind
from tocsin.ntf_router.store.logs.store_files import read_ntf_store
from tocsin.operate.control_port import order_of_operator

NAME = "replay"
SUMMARY = "deliver notifications that have no outcome, and list those that are lost"
DESCRIPTION = (
    "Looks in the store and in the event log for the notifications of a request of `tocsin pipeline replay`. "
    "Notifications that wait in the store are delivered: at once by a running router that has a control port, "
    "otherwise at the next start. Notifications that are not in the store and have no outcome are lost: they are "
    "listed by time, SMP host and hash, and the exit code is 1. Stop the router before reading a folder of logs; "
    "PostgreSQL can be read at any time."
)
EXAMPLE = "tocsin ntf replay tocsin-replay.jsonl"

MOST_NAMED: Final = 20
ORDER: Final = "deliver-pending"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "request", type=Path, metavar="FILE", help="the file that `tocsin pipeline replay` wrote"
    )
    add_router_arguments(parser, NTF)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--dry-run", action="store_true", help="only look; deliver nothing")


def run(options: argparse.Namespace) -> int:
    settings, request = NTF.load_settings(options), read_request(options.request)
    if settings.event_log is None:
        raise ConfigError(
            "[TOCSIN] event_log is not set, so the router has no pseudonyms to compare: name the router that wrote the "
            "events with --folder"
        )
    answer, delivery = asyncio.run(_replay(settings, settings.event_log, request, dry_run=options.dry_run))
    if options.json:
        figures = {name: len(getattr(answer, name)) for name in ReplayAnswer.__slots__}
        lost = [_named(each) for each in answer.lost]
        json.dump({**figures, "delivery": delivery, "lost_ones": lost}, sys.stdout)
        sys.stdout.write("\n")
    else:
        _show(answer, delivery)
    return ExitCode.WRONG if answer.lost else ExitCode.OK


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
    answered = await order_of_operator(port, password, ORDER) if port and password else None
    if answered is not None:
        return answer, f"the running router delivers them: {answered}"
    return answer, f"the router delivers them at its next start, or after {ORDER} at its control port"


async def _pending(settings: NtfSettings) -> AsyncIterator[tuple[bytes, bytes, float]]:
    if settings.store_kind is StoreKind.MEMORY:
        store, _ = read_ntf_store(data_folder(settings), keep_broken_lines=False)
        last = {each.subscription_id: each for each in store.all_notifications() if each.pending}
        for subscription in store.all_subscriptions():
            if (each := last.get(subscription.subscription_id)) is not None:
                yield subscription.queue.notifier_id, each.nonce, each.received_at
        return
    from tocsin.ntf_router.store.postgres.transfer import pending_in_database

    async with opened_database(place_of(settings, data_folder(settings))) as url:
        async for waiting in pending_in_database(url, settings.database_schema):
            yield waiting


def _show(answer: ReplayAnswer, delivery: str) -> None:
    print(f"{len(answer.waiting):>10,}  wait in the store: {delivery}")
    print(f"{len(answer.ended):>10,}  have an outcome by now")
    print(f"{len(answer.erased):>10,}  cannot be identified: the keys of their days are erased")
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
