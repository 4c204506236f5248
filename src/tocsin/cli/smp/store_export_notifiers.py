"""`tocsin smp store export-notifiers`: exports queues that `tocsin pipeline reconcile` compares with an NTF router."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import TypeAlias

from tocsin.cli.routers.router_kind import add_router_arguments
from tocsin.cli.smp.router_kind import SMP
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.errors import ConfigError
from tocsin.events.export_files import add_out_argument, export_rows
from tocsin.events.queue_exports import ExportedQueue, first_notifier_row, notifier_queue
from tocsin.smp_router.settings.files import router_address
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.store.logs.store_files import read_smp_store
from tocsin.transport.credential_files import read_fingerprint

NAME = "export-notifiers"
SUMMARY = "list every queue with a notifier for `tocsin pipeline reconcile`"
DESCRIPTION = (
    "Writes a file with every queue that has a notifier: its notifier id and the associated service. PostgreSQL is "
    "read in one snapshot, also while the router runs; stop the router before exporting a folder of logs. The file "
    "contains plain queue ids and is readable only by its owner: delete it when it is no longer needed."
)
EXAMPLE = "tocsin smp store export-notifiers notifiers-smp1.parquet"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_router_arguments(parser, SMP)
    add_out_argument(parser)


def run(options: argparse.Namespace) -> int:
    settings, taken_at = SMP.load_settings(options), int(time.time())
    key_hash = read_fingerprint(settings.credentials)
    address = str(router_address(settings, key_hash))

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
    print(f"Wrote {count} queues with notifiers to {options.out}")
    return ExitCode.OK


_Notifier: TypeAlias = tuple[bytes, bytes | None]
"""Notifier id, and the id of the associated service."""


def _notifiers(settings: SmpSettings) -> AsyncIterator[_Notifier] | Iterator[_Notifier]:
    if settings.database_url is None:
        return _in_folder(settings)
    from tocsin.smp_router.store.postgres.transfer import notifiers_in_database  # needs asyncpg

    return notifiers_in_database(settings.database_url)


def _in_folder(settings: SmpSettings) -> Iterator[_Notifier]:
    if settings.store is None:
        raise ConfigError(
            "[STORE_LOG] enable is off, so the router keeps its queues in memory only: turn it on and restart it"
        )
    store, _ = read_smp_store(settings.store, keep_broken_lines=False)
    for queue in store.queues():
        if queue.notifier is not None:
            yield queue.notifier.notifier_id, queue.notifier.service_id
