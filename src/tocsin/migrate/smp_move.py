"""`tocsin migrate smp`: an SMP router from the reference to Tocsin, and back."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path

from tocsin.cli.routers.broken_lines import add_broken_lines_argument
from tocsin.durable.log_fields import BadLogLine
from tocsin.durable.transfers import Progress
from tocsin.errors import StoreError
from tocsin.migrate.moves import Move
from tocsin.migrate.plans import add_migrate_arguments
from tocsin.migrate.settings import NOTHING_KEPT
from tocsin.migrate.stores import OpenedStore, StorePlace, Totals
from tocsin.operate.settings.setting_keys import OWN_SECTION
from tocsin.protocol.addresses import RouterAddress
from tocsin.smp_router.settings.files import (
    DEFAULT_FOLDER,
    DEFAULT_STORE,
    INI_FILE,
    TOML_FILE,
    load_smp_settings,
    router_address,
)
from tocsin.smp_router.settings.keys import SMP_KEYS
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.store.interface import totals_of
from tocsin.smp_router.store.logs.log_reading import change_logs
from tocsin.smp_router.store.logs.store_files import fill_folder, read_smp_store
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    data = f"{DEFAULT_STORE}; in place and with --back that of the settings, if they name one"
    add_migrate_arguments(parser, DEFAULT_FOLDER, data)
    parser.add_argument(
        "--database",
        metavar="URL",
        help="keep queues and messages in this PostgreSQL; goes with --to, not with --back",
    )
    add_broken_lines_argument(parser, copied=False)


def run(options: argparse.Namespace) -> int:
    return SmpMove(options).run()


class SmpMove(Move[SmpSettings, SmpMemoryStore]):
    """The reference's store is logs; ours is logs or PostgreSQL."""

    router = NAME
    ini_file = INI_FILE
    toml_file = TOML_FILE
    keys = SMP_KEYS
    store_needs_targets = "--database goes with --to and --to-data: the reference's settings stay as they are"
    store_is_for_the_way_there = (
        "--database is for the way to Tocsin: on the way back the settings name the store"
    )
    back_in_place = "stop Tocsin; then start the reference: its files are in its own formats"
    own_format = "its own formats"
    exported_as = "logs"
    start_in_place = "start the reference"

    def load(self, file: Path, chosen: Iterable[str] = ()) -> SmpSettings:
        return load_smp_settings(file, {}, chosen)

    def fingerprint(self, settings: SmpSettings) -> bytes:
        return read_credentials(settings.credentials).fingerprint

    def address(self, settings: SmpSettings, fingerprint: bytes) -> RouterAddress:
        return router_address(settings, fingerprint, with_password=False)

    def chosen_store(self) -> Mapping[tuple[str, str], str]:
        url = self.options.database
        return {} if url is None else {(OWN_SECTION, "database_url"): url}

    def store_path_note(self, ini: Path, data: Path) -> str:
        return f"set store_path to {data} in [TOCSIN] of {ini}, or give --set store_path={data}"

    def default_data(self) -> Path:
        return DEFAULT_STORE

    def data_in_place(self, settings: SmpSettings) -> Path:
        return self._source_data() if self.options.source_data else settings.store or DEFAULT_STORE

    def reference_place(self, settings: SmpSettings, data: Path) -> StorePlace:
        if settings.store is None:
            raise StoreError(NOTHING_KEPT)
        return StorePlace(data)

    def our_place(self, settings: SmpSettings, folder: Path) -> StorePlace:
        if settings.database_url is None:
            return self.reference_place(settings, folder)
        return StorePlace(folder, settings.database_url, "tocsin_smp")

    def open(self, place: StorePlace, *, skip_broken_lines: bool) -> OpenedStore[SmpMemoryStore]:
        """In place nothing is written, so the reference would find broken lines where they were."""
        notes = []
        back_in_place = self.options.back and self.options.target is None
        if place.url is not None:
            from tocsin.smp_router.store.postgres.transfer import read_whole_database  # needs asyncpg

            store = asyncio.run(read_whole_database(place.url, SmpMemoryStore()))
        else:
            place.require_folder()
            try:
                store, report = read_smp_store(
                    place.folder,
                    skip_broken_lines=skip_broken_lines and not back_in_place,
                    keep_broken_lines=False,
                )
            except BadLogLine as error:
                if not back_in_place:
                    raise
                raise StoreError(
                    f"{error}. The reference would find it there, too: --skip-broken-lines with --to and --to-data "
                    "writes logs without such lines, and what they say is lost"
                ) from error
            if report.skipped or report.broken:
                notes.append(
                    f"left out: {report.skipped} records without a queue, {report.broken} lines that cannot be read"
                )
        totals = totals_of(store)
        return OpenedStore(totals, store, tuple(notes), totals.direct)

    def write_logs(self, folder: Path, store: SmpMemoryStore, progress: Progress) -> None:
        fill_folder(folder, store, progress)

    async def write_rows(self, place: StorePlace, store: SmpMemoryStore, progress: Progress) -> None:
        from tocsin.smp_router.store.postgres.transfer import fill_database  # needs asyncpg

        assert place.url is not None
        await fill_database(place.url, store, progress)

    def store_line(self, place: StorePlace, totals: Totals) -> str:
        return f"store: {totals}" if self.options.back else f"store {place.folder}: {totals}"

    def direct_note(self, count: int) -> str:
        return (
            f"{count} records of direct notifications mean nothing to the reference: their queues get no "
            "notifications until their devices subscribe in the old way. They stay in smp-server-direct.log"
        )

    def verified_in_place(self, used: StorePlace, totals: Totals, fingerprint: bytes) -> str:
        """Nothing was written that could be different."""
        return f"settings, certificates and {totals} can be used by Tocsin"

    def refuse_back_in_place(self, file: Path, ours: StorePlace) -> None:
        if ours.in_database or file.name != INI_FILE:
            raise StoreError(
                "the reference reads an INI file and logs: name new folders for them with --to and --to-data"
            )
        if change_logs(ours.folder):
            raise StoreError(
                f"{ours.folder} has changes that the reference does not know (Tocsin was killed): "
                "`tocsin smp start --maintenance` writes them to its logs"
            )
