"""`tocsin smp store export-notifiers`: what `tocsin pipeline reconcile` compares with an NTF router."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import TypeAlias

from tocsin.cli.smp.files import add_config_argument, settings_of
from tocsin.errors import ConfigError
from tocsin.events.export_files import add_out_argument, export_rows
from tocsin.events.queue_exports import ExportedQueue, first_notifier_row, notifier_queue
from tocsin.smp_router.settings.files import router_address
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.store.logs.store_files import read_smp_store
from tocsin.transport.credential_files import read_fingerprint

NAME = "export-notifiers"
SUMMARY = "list all queues with notifiers for `tocsin pipeline reconcile`"
DESCRIPTION = (
    "Writes a file with every queue that has a notifier: notifier id, and the service it is associated with. "
    "PostgreSQL is read in one snapshot, also while the router runs; a folder of logs only while it does not. The file "
    "names queues in clear, and only its owner may read it: keep it no longer than needed."
)
EXAMPLE = "tocsin smp store export-notifiers notifiers-smp1.parquet"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_argument(parser)
    add_out_argument(parser)


def run(options: argparse.Namespace) -> int:
    settings, taken_at = settings_of(options), int(time.time())
    key_hash = read_fingerprint(settings.credentials)
    address = str(router_address(settings, key_hash, with_password=False))

    def row(notifier: _Notifier) -> ExportedQueue:
        notifier_id, service_id = notifier
        return notifier_queue(
            key_hash=key_hash,
            router=address,
            notifier_id=notifier_id,
            service_id=service_id,
            taken_at=taken_at,
        )

    first = first_notifier_row(key_hash, address, taken_at)
    count = asyncio.run(export_rows(options.out, first, _notifiers(settings), row))
    print(f"{count} queues with notifiers in {options.out}")
    return 0


_Notifier: TypeAlias = tuple[bytes, bytes | None]
"""Its id, and that of the service it is associated with."""


def _notifiers(settings: SmpSettings) -> AsyncIterator[_Notifier] | Iterator[_Notifier]:
    if settings.database_url is None:
        return _of_folder(settings)
    from tocsin.smp_router.store.postgres.transfer import notifiers_in_database  # needs asyncpg

    return notifiers_in_database(settings.database_url)


def _of_folder(settings: SmpSettings) -> Iterator[_Notifier]:
    if settings.store is None:
        raise ConfigError("[STORE_LOG] enable is off: the router keeps its queues in memory only")
    store, _ = read_smp_store(settings.store, keep_broken_lines=False)
    for queue in store.queues():
        if queue.notifier is not None:
            yield queue.notifier.notifier_id, queue.notifier.service_id
