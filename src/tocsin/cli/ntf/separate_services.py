"""`tocsin ntf separate-services`: moves an older installation to a service certificate for each SMP router."""

from __future__ import annotations

import argparse
import asyncio

from tocsin.cli.ntf.router_kind import NTF
from tocsin.cli.routers.router_kind import add_router_arguments
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.errors import ConfigError
from tocsin.ntf_router.opened_store import opened_store
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind
from tocsin.ntf_router.subscriber.service_certificates import SharedServices, end_shared_services

NAME = "separate-services"
SUMMARY = "use a different service certificate for each SMP router"
DESCRIPTION = (
    "Ends the services of the one certificate that an older installation shows to all SMP routers, which can recognise "
    "the NTF router by it. At its next start, the router creates a certificate for each SMP router and moves its "
    "queues to the new service, once. First turn separate_services on, and stop the router. Queues of direct "
    "notifications stay with the router's own certificate."
)
EXAMPLE = "tocsin ntf separate-services --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_router_arguments(parser, NTF)
    parser.add_argument("--dry-run", action="store_true", help="show what would be done; change nothing")


def run(options: argparse.Namespace) -> int:
    settings = NTF.load_settings(options)
    if not settings.subscriber.separate_services:
        raise ConfigError(
            "[TOCSIN] separate_services is off, so the router would use its own certificate again: turn it on first"
        )
    if settings.store_kind is StoreKind.MEMORY and not settings.store_log:
        raise ConfigError("the router keeps its store in memory only: a restart is enough")
    found = asyncio.run(_end_shared(settings, dry_run=options.dry_run))
    words = "would move" if options.dry_run else "move"
    print(f"{found.moved} SMP routers {words} to certificates of their own, with {found.queues:,} queues")
    if found.direct:
        print(
            f"{found.direct} SMP routers have queues of direct notifications and keep the router's own certificate"
        )
    print(f"{found.separate} SMP routers have certificates of their own already")
    return ExitCode.OK


async def _end_shared(settings: NtfSettings, *, dry_run: bool) -> SharedServices:
    async with opened_store(settings, serving=not dry_run) as store:
        return await end_shared_services(store, dry_run=dry_run)
