"""`tocsin migrate ntf`: an NTF router from the reference to Tocsin, and back."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tocsin.cli.broken_lines import add_broken_lines_argument, hint_at_broken_lines
from tocsin.cli.config_files import found_file
from tocsin.cli.migrate_ntf_stores import (
    NtfSource,
    OpenedSource,
    database_note,
    export_logs,
    import_store,
    open_source,
    totals_in,
)
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
from tocsin.cli.migrate_settings import AdaptedSettings, adapted_ini, reference_ini
from tocsin.cli.ntf_files import config_folder, credentials_of, router_address, store_folder
from tocsin.config.ntf_ini import INI_FILE, TOML_FILE, load_ntf_settings
from tocsin.config.ntf_keys import NTF_KEYS
from tocsin.config.ntf_settings import NtfSettings, StoreKind
from tocsin.errors import ConfigError, StoreError
from tocsin.stores.memory.ntf_store_folder import change_logs
from tocsin.stores.memory.store_folder import has_content
from tocsin.stores.ntf_transfers import NtfTotals
from tocsin.transport.credential_files import read_credentials

NAME = "ntf"
SUMMARY = "move an NTF router"
DESCRIPTION = (
    "Reads ntf-server.ini, the certificates and the store (PostgreSQL or logs) of the reference's ntf-server, says "
    "what will happen, copies what is to be copied, and counts tokens and subscriptions afterwards. The reference's "
    "tables in PostgreSQL are used as they are. Without --to no file is written: Tocsin runs in the reference's "
    "folders, and this checks that it can. --back does the reverse. What is read stays as it is."
)
EXAMPLE = "tocsin migrate ntf --dry-run"

_STATISTICS: Final = ("ntf-server-stats.log", "ntf-server-stats.daily.log")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_migrate_arguments(parser, config_folder(), store_folder())
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--database", metavar="URL", help="from logs into this PostgreSQL; goes with --to, not with --back"
    )
    where.add_argument(
        "--embedded", action="store_true", help="from logs into a PostgreSQL of our own; goes with --to"
    )
    add_broken_lines_argument(parser)


def run(options: argparse.Namespace) -> int:
    with hint_at_broken_lines():
        plan = _back(options) if options.back else _forward(options)
    return plan.carry_out(dry_run=options.dry_run)


def _forward(options: argparse.Namespace) -> Plan:
    targets = checked_targets(options)
    if targets is not None:
        return _to_new_folders(options, *targets)
    if options.database or options.embedded:
        raise ConfigError("--database and --embedded go with --to: the reference's settings stay as they are")
    return _in_place(options)


def _in_place(options: argparse.Namespace) -> Plan:
    """Tocsin in the reference's folders: only tables of its own are added, if there is a database."""
    plan, source = Plan(), options.source.absolute()
    ini, data = source / INI_FILE, (options.source_data or store_folder()).absolute()
    settings = load_ntf_settings(ini, {})
    if settings.store != data:
        plan.notes.append(f"start Tocsin with --set store_path={data}, or with NTF_SERVER_LOG_PATH={data}")
    used = NtfSource.of(settings, data)
    refuse_running(settings.ports, options, plan)
    opened = open_source(used, skip_broken_lines=options.skip_broken_lines)
    fingerprint = credentials_of(settings).fingerprint
    _tell_found(plan, ini, settings, fingerprint, used, opened)
    plan.steps += import_store(opened, used, used)
    plan.verify = lambda: _verified(used, opened.totals, source, fingerprint)
    plan.next_commands = [f"tocsin ntf start --config {source}", "tocsin doctor"]
    plan.back = ["stop Tocsin; then start the reference: its store is in its own format"]
    return plan


def _to_new_folders(options: argparse.Namespace, target: Path, target_data: Path) -> Plan:
    plan, source = Plan(), options.source.absolute()
    ini, data = source / INI_FILE, (options.source_data or store_folder()).absolute()
    reference = _reference_source(ini, data, options)
    adapted = adapted_ini(ini, NTF_KEYS, _values(options, target_data))
    settings = adapted.loaded(ini, load_ntf_settings)
    used = NtfSource.of(settings, target_data)
    refuse_running(settings.ports, options, plan)
    opened = open_source(reference, skip_broken_lines=options.skip_broken_lines)
    fingerprint = read_credentials(source).fingerprint
    _tell_found(plan, ini, settings, fingerprint, reference, opened)
    plan.notes += [*adapted.notes, *database_note(used)]
    plan.steps = [
        make_folders(target, target_data, embedded=used.embedded),
        copy_credentials(source, target),
        _settings_step(target, adapted),
        *copy_files(data, target_data, _STATISTICS),
        *import_store(opened, reference, used),
    ]
    plan.verify = lambda: _verified(used, opened.totals, target, fingerprint)
    plan.next_commands = [f"tocsin ntf start --config {target}", "tocsin doctor"]
    kept = "" if used.url else ": it has what was there before the move"
    plan.back = [
        f"tocsin migrate ntf --back --from {target} --to NEW --to-data NEW-DATA",
        f"or start the reference in {source} again{kept}",
    ]
    return plan


def _tell_found(
    plan: Plan, file: Path, settings: NtfSettings, fingerprint: bytes, source: NtfSource, opened: OpenedSource
) -> None:
    plan.found += [
        f"settings {file}, certificates: {_address(settings, fingerprint)}",
        f"store {source}: {opened.totals}",
    ]
    plan.notes += opened.notes
    if settings.apns.key_file is None:
        plan.notes.append("the key for Apple is taken from APNS_KEY_FILE and APNS_KEY_ID, by both servers")


def _settings_step(target: Path, adapted: AdaptedSettings) -> Step:
    path = target / INI_FILE
    return Step(f"write {path}", lambda: write_new(path, adapted.text.encode(), 0o600))


def _values(options: argparse.Namespace, data: Path) -> dict[tuple[str, str], str]:
    values = {("TOCSIN", "store_path"): str(data)}
    if options.database:
        values["STORE_LOG", "db_connection"] = options.database
    if options.embedded:
        values["TOCSIN", "store"] = "embedded"
    return values


def _reference_source(ini: Path, data: Path, options: argparse.Namespace) -> NtfSource:
    """Where the reference keeps its store: what the options choose is for ours."""
    without = adapted_ini(ini, NTF_KEYS, {}).loaded(ini, load_ntf_settings)
    source = NtfSource.of(without, data)
    if source.url and (options.database or options.embedded):
        raise ConfigError(
            "the reference's store is in PostgreSQL already, and is used as it is: leave out --database and --embedded"
        )
    return source


def _verified(used: NtfSource, totals: NtfTotals, folder: Path, fingerprint: bytes) -> str:
    settings = load_ntf_settings(found_file(folder, folder, INI_FILE, TOML_FILE), {})
    if credentials_of(settings).fingerprint != fingerprint:
        raise ConfigError(f"{folder} has another identity than the server that was moved")
    found = totals_in(used)
    if found != totals:
        raise StoreError(f"there are {found} instead of {totals}")
    return f"the same identity, {found}"


def _address(settings: NtfSettings, fingerprint: bytes) -> str:
    return (
        str(router_address(settings, fingerprint)) if settings.public_hosts else "its address has no host yet"
    )


def _back(options: argparse.Namespace) -> Plan:
    if options.database or options.embedded:
        raise ConfigError(
            "--database and --embedded are for the way to Tocsin: on the way back settings name the store"
        )
    plan, source = Plan(), options.source.absolute()
    targets = checked_targets(options)
    file = found_file(source, source, INI_FILE, TOML_FILE)
    chosen = [f"store_path={options.source_data.absolute()}"] if options.source_data else []
    settings = load_ntf_settings(file, {}, chosen)
    refuse_running(settings.ports, options, plan)
    fingerprint = credentials_of(settings).fingerprint
    ours = NtfSource.of(settings, settings.store or store_folder())
    opened = open_source(ours, skip_broken_lines=options.skip_broken_lines)
    _tell_found(plan, file, settings, fingerprint, ours, opened)
    if opened.direct:
        plan.notes.append(
            f"{opened.direct} of the subscriptions are direct notifications, which the reference does not know: their "
            "devices get no pushes until they subscribe in the old way"
        )
    if settings.apns.key_file is not None:
        plan.notes.append("the reference takes the key for Apple from APNS_KEY_FILE and APNS_KEY_ID only")
    plan.next_commands = ["ntf-server start"]
    if targets is None:
        return _back_in_place(plan, settings, file, ours, opened.totals)
    adapted = reference_ini(file, NTF_KEYS, settings)
    plan.notes += adapted.notes
    target, data = targets
    plan.steps = [
        make_folders(target, data),
        copy_credentials(settings.credentials, target),
        _settings_step(target, adapted),
        *([] if settings.store is None else copy_files(settings.store, data, _STATISTICS)),
    ]
    paths = f"NTF_SERVER_CFG_PATH={target} NTF_SERVER_LOG_PATH={data}"
    used = ours
    if settings.store_kind is StoreKind.URL:
        plan.notes.append("the tables in PostgreSQL are the reference's own, and are used by it as they are")
        plan.next_commands = [f"{paths} ntf-server start"]
    else:
        used = NtfSource(data)
        plan.steps.append(export_logs(opened, data))
        plan.next_commands = [
            f"set db_connection in {target / INI_FILE}: newer versions of the reference keep all in PostgreSQL",
            f"{paths} ntf-server database import",
            f"{paths} ntf-server start",
        ]
    plan.verify = lambda: _verified_for_reference(used, opened.totals, target, fingerprint)
    plan.back = [f"start Tocsin with {file} again: it has what was there before the move"]
    return plan


def _verified_for_reference(used: NtfSource, totals: NtfTotals, target: Path, fingerprint: bytes) -> str:
    if read_credentials(target).fingerprint != fingerprint:
        raise ConfigError(f"{target} has another identity than the server that was moved")
    found = totals_in(used)
    if found != totals:
        raise StoreError(f"there are {found} instead of {totals}")
    return f"the same identity, {found} in the reference's format"


def _back_in_place(plan: Plan, settings: NtfSettings, file: Path, ours: NtfSource, totals: NtfTotals) -> Plan:
    """Raises StoreError if the reference would not find everything."""
    if settings.store_kind is StoreKind.EMBEDDED or file.name != INI_FILE:
        raise StoreError(
            "the reference reads an INI file, and PostgreSQL or logs: name new folders for them with --to and --to-data"
        )
    if settings.store_kind is StoreKind.MEMORY and any(map(has_content, change_logs(ours.folder).values())):
        raise StoreError(
            "Tocsin was killed: `tocsin ntf start --maintenance` brings the reference's logs up to date"
        )
    plan.verify = lambda: f"the reference finds {totals} in its own format"
    return plan
