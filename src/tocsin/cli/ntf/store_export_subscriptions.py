"""`tocsin ntf store export-subscriptions`: exports what `tocsin pipeline reconcile` compares with SMP routers."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import TypeAlias

from tocsin.cli.ntf.router_kind import NTF
from tocsin.cli.routers.router_kind import add_router_arguments
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.errors import ConfigError
from tocsin.events.export_files import add_out_argument, export_rows
from tocsin.events.queue_exports import SubscribedQueue, first_subscribed_row, subscribed_queue
from tocsin.migrate.ntf_stores import opened_database, place_of
from tocsin.ntf_router.opened_store import data_folder
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind
from tocsin.ntf_router.store.logs.store_files import read_ntf_store
from tocsin.protocol.addresses import RouterLocation, Scheme
from tocsin.protocol.ntf.statuses import TokenState, subscription_status_text

NAME = "export-subscriptions"
SUMMARY = "list every subscription for `tocsin pipeline reconcile`"
DESCRIPTION = (
    "Writes a file with every subscription: SMP router, notifier id, status. PostgreSQL is read in one snapshot, also "
    "while the router runs; stop the router before exporting a folder of logs. Export subscriptions before the SMP "
    "routers' notifiers, so that queues subscribed in between do not count as drift. The file contains plain queue ids "
    "and is readable only by its owner: delete it when it is no longer needed."
)
EXAMPLE = "tocsin ntf store export-subscriptions subscriptions.parquet"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_router_arguments(parser, NTF)
    add_out_argument(parser)


def run(options: argparse.Namespace) -> int:
    settings, taken_at = NTF.load_settings(options), int(time.time())
    addresses: dict[RouterLocation, str] = {}

    def row(subscription: _Subscription) -> SubscribedQueue:
        router, service_id, notifier_id, status, associated, token_active = subscription
        if router not in addresses:
            addresses[router] = router.text(Scheme.SMP)
        return subscribed_queue(
            key_hash=router.key_hash,
            router=addresses[router],
            notifier_id=notifier_id,
            status=status,
            associated=associated,
            service_id=service_id,
            token_active=token_active,
            taken_at=taken_at,
        )

    first = first_subscribed_row(taken_at)
    count = asyncio.run(export_rows(options.out, first, _subscriptions(settings), row))
    print(f"Wrote {count} subscriptions to {options.out}")
    return ExitCode.OK


_Subscription: TypeAlias = tuple[RouterLocation, bytes | None, bytes, str, bool, bool]
"""SMP router, service id there, notifier id, status, whether it is associated, whether its token is active."""


def _subscriptions(settings: NtfSettings) -> AsyncIterator[_Subscription] | Iterator[_Subscription]:
    return _in_folder(settings) if settings.store_kind is StoreKind.MEMORY else _in_database(settings)


def _in_folder(settings: NtfSettings) -> Iterator[_Subscription]:
    if not settings.store_log:
        raise ConfigError(
            "[STORE_LOG] enable is off, so the router keeps its store in memory only: turn it on and restart the router"
        )
    store, _ = read_ntf_store(data_folder(settings), keep_broken_lines=False)
    services = {router.key_hash: service_id for router, service_id in store.all_services()}
    active = {each.token_id for each in store.all_tokens() if each.status.state is TokenState.ACTIVE}
    for each in store.all_subscriptions():
        router, status = each.queue.router, subscription_status_text(each.status)
        service_id, token_active = services.get(router.key_hash), each.token_id in active
        yield router, service_id, each.queue.notifier_id, status, each.service_associated, token_active


async def _in_database(settings: NtfSettings) -> AsyncIterator[_Subscription]:
    from tocsin.ntf_router.store.postgres.transfer import subscriptions_in_database

    async with opened_database(place_of(settings, data_folder(settings))) as url:
        async for each in subscriptions_in_database(url, settings.database_schema):
            yield each
