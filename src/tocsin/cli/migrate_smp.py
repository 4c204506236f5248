"""`tocsin migrate smp`: an SMP router from the reference to Tocsin, and back."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Final

from tocsin.cli.broken_lines import add_broken_lines_argument, hint_at_broken_lines
from tocsin.cli.config_files import found_file
from tocsin.cli.migrate_plans import (
    Plan,
    Step,
    add_migrate_arguments,
    checked_targets,
    copy_credentials,
    copy_files,
    make_folders,
    refuse_running,
    write_new,
)
from tocsin.cli.migrate_settings import NOTHING_KEPT, adapted_ini, reference_ini
from tocsin.cli.smp_files import DEFAULT_FOLDER, DEFAULT_STORE, router_address
from tocsin.cli.smp_transfers import progress_bar
from tocsin.config.smp_ini import INI_FILE, TOML_FILE, load_smp_settings
from tocsin.config.smp_keys import SMP_KEYS
from tocsin.config.smp_settings import SmpSettings
from tocsin.errors import ConfigError, StoreError
from tocsin.stores.memory.smp_memory_store import SmpMemoryStore
from tocsin.stores.memory.smp_store_files import read_smp_store
from tocsin.stores.memory.store_export import fill_folder
from tocsin.stores.memory.store_folder import change_logs
from tocsin.stores.transfers import StoreTotals, totals_of
from tocsin.transport.credential_files import read_credentials

NAME = "smp"
SUMMARY = "move an SMP router"
DESCRIPTION = (
    "Reads smp-server.ini, the certificates and the logs of the reference's smp-server, says what will happen, copies "
    "them to new folders or into PostgreSQL, and counts queues and messages afterwards. Without --to nothing is "
    "written: Tocsin runs in the reference's folders, and this checks that it can. --back does the reverse. What is "
    "read stays as it is."
)
EXAMPLE = "tocsin migrate smp --to /srv/smp --to-data /srv/smp-data --dry-run"

_STATISTICS: Final = ("smp-server-stats.log", "smp-server-stats.daily.log")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_migrate_arguments(parser, DEFAULT_FOLDER, DEFAULT_STORE)
    parser.add_argument(
        "--database",
        metavar="URL",
        help="keep queues and messages in this PostgreSQL; goes with --to, not with --back",
    )
    add_broken_lines_argument(parser)


def run(options: argparse.Namespace) -> int:
    with hint_at_broken_lines():
        plan = _back(options) if options.back else _forward(options)
    return plan.carry_out(dry_run=options.dry_run)


def _forward(options: argparse.Namespace) -> Plan:
    plan, source = Plan(), options.source.absolute()
    targets = checked_targets(options)
    if options.database is not None and targets is None:
        raise ConfigError(
            "--database goes with --to and --to-data: the reference's settings stay as they are"
        )
    ini, data = source / INI_FILE, (options.source_data or DEFAULT_STORE).absolute()
    where = data if targets is None else targets[1]
    values = {("TOCSIN", "store_path"): str(where)}
    if options.database is not None:
        values["TOCSIN", "database_url"] = options.database
    if targets is None:
        settings = load_smp_settings(ini, {})
        data = options.source_data.absolute() if options.source_data else settings.store or DEFAULT_STORE
        if settings.store != data:
            plan.notes.append(
                f"set store_path to {data} in [TOCSIN] of {ini}, or give --set store_path={data}"
            )
    else:
        adapted = adapted_ini(ini, SMP_KEYS, values)
        plan.notes += adapted.notes
        settings = adapted.loaded(ini, load_smp_settings)
    if settings.store is None:
        raise StoreError(NOTHING_KEPT)
    refuse_running(settings.ports, options, plan)
    fingerprint = read_credentials(source).fingerprint
    store = _read_logs(data, options, plan)
    totals = totals_of(store)
    plan.found += [
        f"settings {ini}, certificates: {_address(settings, fingerprint)}",
        f"store {data}: {totals}",
    ]
    plan.next_commands = [f"tocsin smp start --config {(targets or (source,))[0]}", "tocsin doctor"]
    if targets is None:
        plan.verify = lambda: f"settings, certificates and {totals} can be used by Tocsin"
        plan.back = ["stop Tocsin; then start the reference: its files are in its own formats"]
        return plan
    target, target_data = targets
    plan.steps = [
        make_folders(target, target_data),
        copy_credentials(source, target),
        Step(
            f"write {target / INI_FILE}", lambda: write_new(target / INI_FILE, adapted.text.encode(), 0o600)
        ),
        *copy_files(data, target_data, _STATISTICS),
        _store_step(store, totals, target_data, options.database),
    ]
    plan.verify = lambda: _verified(target, fingerprint, totals)
    plan.back = [
        f"tocsin migrate smp --back --from {target} --to NEW --to-data NEW-DATA",
        f"or start the reference in {source} again: it has what was there before the move",
    ]
    return plan


def _read_logs(folder: Path, options: argparse.Namespace, plan: Plan) -> SmpMemoryStore:
    if not folder.is_dir():
        raise StoreError(f"{folder} is not there: name the folder of the store with --from-data")
    store, report = read_smp_store(
        folder, skip_broken_lines=options.skip_broken_lines, keep_broken_lines=False
    )
    if report.skipped or report.broken:
        plan.notes.append(
            f"left out: {report.skipped} records without a queue, {report.broken} lines that cannot be read"
        )
    return store


def _store_step(store: SmpMemoryStore, totals: StoreTotals, folder: Path, database: str | None) -> Step:
    if database is None:

        def write_logs() -> None:
            with progress_bar("Writing logs", totals) as progress:
                fill_folder(folder, store, progress)

        return Step(f"write {totals} to logs in {folder}", write_logs)

    def write_rows() -> None:
        from tocsin.stores.postgres.store_transfer import fill_database  # needs asyncpg

        with progress_bar("Writing to PostgreSQL", totals) as progress:
            asyncio.run(fill_database(database, store, progress))

    return Step(f"write {totals} to PostgreSQL, schema tocsin_smp, all or nothing", write_rows)


def _verified(target: Path, fingerprint: bytes, totals: StoreTotals) -> str:
    settings = load_smp_settings(found_file(target, target, INI_FILE, TOML_FILE), {})
    if read_credentials(settings.credentials).fingerprint != fingerprint:
        raise ConfigError(f"{target} has another identity than the server that was moved")
    found = totals_of(_whole_store(settings))
    if found != totals:
        raise StoreError(f"there are {found} instead of {totals}")
    return f"the same identity, {found}"


def _whole_store(settings: SmpSettings) -> SmpMemoryStore:
    """Of a router that does not run. Raises StoreError."""
    if settings.database_url is not None:
        from tocsin.stores.postgres.store_transfer import read_whole_database  # needs asyncpg

        return asyncio.run(read_whole_database(settings.database_url, SmpMemoryStore()))
    if settings.store is None:
        raise StoreError(NOTHING_KEPT)
    return read_smp_store(settings.store, keep_broken_lines=False)[0]


def _address(settings: SmpSettings, fingerprint: bytes) -> str:
    if not settings.public_hosts:
        return "its address has no host yet"
    return str(router_address(settings, fingerprint, with_password=False))


def _back(options: argparse.Namespace) -> Plan:
    if options.database is not None:
        raise ConfigError("--database is for the way to Tocsin: on the way back the settings name the store")
    plan, source = Plan(), options.source.absolute()
    targets = checked_targets(options)
    file = found_file(source, source, INI_FILE, TOML_FILE)
    chosen = [f"store_path={options.source_data.absolute()}"] if options.source_data else []
    settings = load_smp_settings(file, {}, chosen)
    refuse_running(settings.ports, options, plan)
    fingerprint = read_credentials(settings.credentials).fingerprint
    store = _whole_store(settings)
    totals = totals_of(store)
    plan.found += [f"settings {file}, certificates: {_address(settings, fingerprint)}", f"store: {totals}"]
    if totals.direct:
        plan.notes.append(
            f"{totals.direct} records of direct notifications mean nothing to the reference: their queues get no "
            "notifications until their devices subscribe in the old way. They stay in smp-server-direct.log"
        )
    if targets is None:
        return _back_in_place(plan, settings, file, totals)
    adapted = reference_ini(file, SMP_KEYS, settings)
    plan.notes += adapted.notes
    target, data = targets
    plan.steps = [
        make_folders(target, data),
        copy_credentials(settings.credentials, target),
        Step(
            f"write {target / INI_FILE}", lambda: write_new(target / INI_FILE, adapted.text.encode(), 0o600)
        ),
        *([] if settings.store is None else copy_files(settings.store, data, _STATISTICS)),
        _store_step(store, totals, data, None),
    ]

    def verify() -> str:
        if read_credentials(target).fingerprint != fingerprint:
            raise ConfigError(f"{target} has another identity than the server that was moved")
        found = totals_of(read_smp_store(data, keep_broken_lines=False)[0])
        if found != totals:
            raise StoreError(f"there are {found} instead of {totals}")
        return f"the same identity, {found} in the reference's logs"

    plan.verify = verify
    plan.next_commands = [f"SMP_SERVER_CFG_PATH={target} SMP_SERVER_LOG_PATH={data} smp-server start"]
    plan.back = [f"start Tocsin with {file} again: it has what was there before the move"]
    return plan


def _back_in_place(plan: Plan, settings: SmpSettings, file: Path, totals: StoreTotals) -> Plan:
    """Raises StoreError if the reference would not find everything."""
    if settings.database_url is not None or file.name != INI_FILE:
        raise StoreError(
            "the reference reads an INI file and logs: name new folders for them with --to and --to-data"
        )
    if settings.store is not None and change_logs(settings.store):
        raise StoreError(
            f"{settings.store} has changes that the reference does not know (Tocsin was killed): "
            "`tocsin smp start --maintenance` writes them to its logs"
        )
    plan.verify = lambda: f"the reference finds {totals} in its own formats"
    plan.next_commands = ["start the reference"]
    return plan
