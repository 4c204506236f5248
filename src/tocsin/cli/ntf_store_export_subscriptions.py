"""`tocsin ntf store export-subscriptions`: what `tocsin pipeline reconcile` compares with SMP routers."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from tocsin.cli.export_files import OUT_HELP, export_file, in_portions
from tocsin.cli.ntf_files import add_config_argument, settings_of
from tocsin.cli.ntf_store import data_folder
from tocsin.cli.ntf_transfers import NtfEnds
from tocsin.config.ntf_settings import NtfSettings, StoreKind
from tocsin.errors import ConfigError
from tocsin.observability.queue_exports import SubscribedQueue, first_subscribed_row, subscribed_queue
from tocsin.protocol.addresses import RouterLocation, Scheme
from tocsin.protocol.ntf.statuses import TokenState, subscription_status_text
from tocsin.stores.memory.ntf_store_files import read_ntf_store

NAME = "export-subscriptions"
SUMMARY = "list all subscriptions for `tocsin pipeline reconcile`"
DESCRIPTION = (
    "Writes a file with every subscription: SMP router, notifier id, status. PostgreSQL is read in one snapshot, also "
    "while the router runs; a folder of logs only while it does not. Take this export before those of the SMP routers: "
    "then what is subscribed meanwhile is no drift. The file names queues in clear, and only its owner may read it: "
    "keep it no longer than needed."
)
EXAMPLE = "tocsin ntf store export-subscriptions subscriptions.parquet"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_argument(parser)
    parser.add_argument("out", type=Path, metavar="OUT", help=OUT_HELP)


def run(options: argparse.Namespace) -> int:
    count = asyncio.run(_export(settings_of(options), options.out, int(time.time())))
    print(f"{count} subscriptions in {options.out}")
    return 0


async def _export(settings: NtfSettings, out: Path, taken_at: int) -> int:
    count = 0
    with export_file(out, SubscribedQueue) as add:
        add([first_subscribed_row(taken_at)])
        rows = (
            _of_folder(settings, taken_at)
            if settings.store_kind is StoreKind.MEMORY
            else _of_database(settings, taken_at)
        )
        async for portion in in_portions(rows):
            add(portion)
            count += len(portion)
    return count


def _of_folder(settings: NtfSettings, taken_at: int) -> Iterator[SubscribedQueue]:
    if not settings.store_log:
        raise ConfigError("the router keeps its store in memory only: there is nothing to read")
    store, _ = read_ntf_store(data_folder(settings), keep_broken_lines=False)
    services = dict(store.all_services())
    active = {each.token_id for each in store.all_tokens() if each.status.state is TokenState.ACTIVE}
    addresses: dict[RouterLocation, str] = {}
    for each in store.all_subscriptions():
        router = each.queue.router
        yield subscribed_queue(
            key_hash=router.key_hash,
            router=addresses.setdefault(router, router.text(Scheme.SMP)),
            notifier_id=each.queue.notifier_id,
            status=subscription_status_text(each.status),
            associated=each.service_associated,
            service_id=services.get(router),
            token_active=each.token_id in active,
            taken_at=taken_at,
        )


async def _of_database(settings: NtfSettings, taken_at: int) -> AsyncIterator[SubscribedQueue]:
    from tocsin.stores.postgres.exported_queues import subscriptions_in_database  # needs asyncpg

    embedded = data_folder(settings) if settings.store_kind is StoreKind.EMBEDDED else None
    ends = NtfEnds(data_folder(settings), settings.database_schema, settings.database_url, embedded)
    addresses: dict[RouterLocation, str] = {}
    async with ends.database() as url:
        async for each in subscriptions_in_database(url, ends.schema):
            yield subscribed_queue(
                key_hash=each.router.key_hash,
                router=addresses.setdefault(each.router, each.router.text(Scheme.SMP)),
                notifier_id=each.notifier_id,
                status=each.status,
                associated=each.associated,
                service_id=each.service_id,
                token_active=each.token_active,
                taken_at=taken_at,
            )
