"""`tocsin migrate ntf`: an NTF router from the reference to Tocsin, and back."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tocsin.cli.routers.broken_lines import add_broken_lines_argument
from tocsin.durable.log_files import has_content
from tocsin.durable.transfers import Progress
from tocsin.errors import ConfigError, StoreError
from tocsin.migrate.moves import Move
from tocsin.migrate.ntf_stores import (
    database_notes,
    fill_place,
    open_place,
    place_of,
    update_tables,
)
from tocsin.migrate.plans import Step, add_migrate_arguments
from tocsin.migrate.settings import STORE_SECTION
from tocsin.migrate.stores import OpenedStore, StorePlace
from tocsin.ntf_router.settings.files import INI_FILE, TOML_FILE, load_ntf_settings
from tocsin.ntf_router.settings.keys import NTF_KEYS
from tocsin.ntf_router.settings.locations import config_folder, credentials_of, router_address, store_folder
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.ntf_router.store.logs.log_reading import change_logs
from tocsin.ntf_router.store.logs.store_files import fill_ntf_folder
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.operate.settings.setting_keys import OWN_SECTION
from tocsin.protocol.addresses import RouterAddress

NAME = "ntf"
SUMMARY = "move an NTF router"
DESCRIPTION = (
    "Reads ntf-server.ini, the certificates and the store (PostgreSQL or logs) of the reference's ntf-server, says "
    "what will happen, copies what is to be copied, and counts tokens and subscriptions afterwards. The reference's "
    "tables in PostgreSQL are used as they are. Without --to no file is written: Tocsin runs in the reference's "
    "folders, and this checks that it can. --back does the reverse. What is read stays as it is."
)
EXAMPLE = "tocsin migrate ntf --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    data = f"{store_folder()}; with --back that of the settings, if they name one"
    add_migrate_arguments(parser, config_folder(), data)
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--database", metavar="URL", help="from logs into this PostgreSQL; goes with --to, not with --back"
    )
    where.add_argument(
        "--embedded", action="store_true", help="from logs into a PostgreSQL of our own; goes with --to"
    )
    add_broken_lines_argument(parser, copied=False)


def run(options: argparse.Namespace) -> int:
    return NtfMove(options).run()


class NtfMove(Move[NtfSettings, NtfMemoryStore]):
    """A PostgreSQL of the operator's is used by both servers, and stays where it is."""

    router = NAME
    ini_file = INI_FILE
    toml_file = TOML_FILE
    keys = NTF_KEYS
    store_needs_targets = "--database and --embedded go with --to: the reference's settings stay as they are"
    store_is_for_the_way_there = (
        "--database and --embedded are for the way to Tocsin: on the way back settings name the store"
    )
    back_in_place = "stop Tocsin; then start the reference: its store is in its own format"
    own_format = "its own format"
    exported_as = "format"
    start_in_place = "ntf-server start"

    def load(self, file: Path, chosen: Iterable[str] = ()) -> NtfSettings:
        return load_ntf_settings(file, {}, chosen)

    def fingerprint(self, settings: NtfSettings) -> bytes:
        return credentials_of(settings).fingerprint

    def address(self, settings: NtfSettings, fingerprint: bytes) -> RouterAddress:
        return router_address(settings, fingerprint)

    def chosen_store(self) -> Mapping[tuple[str, str], str]:
        if self.options.embedded:
            return {(OWN_SECTION, "store"): "embedded"}
        return {(STORE_SECTION, "db_connection"): self.options.database} if self.options.database else {}

    def store_path_note(self, ini: Path, data: Path) -> str:
        return f"start Tocsin with --set store_path={data}, or with NTF_SERVER_LOG_PATH={data}"

    def notes_on_settings(self, settings: NtfSettings) -> Sequence[str]:
        if settings.apns.key_file is None:
            return ["the key for Apple is taken from APNS_KEY_FILE and APNS_KEY_ID, by both servers"]
        if self.options.back:
            return ["the reference takes the key for Apple from APNS_KEY_FILE and APNS_KEY_ID only"]
        return []

    def default_data(self) -> Path:
        return store_folder()

    def reference_place(self, settings: NtfSettings, data: Path) -> StorePlace:
        place = place_of(settings, data)
        if place.url and self.chosen_store():
            raise ConfigError(
                "the reference's store is in PostgreSQL already, and is used as it is: leave out --database and "
                "--embedded"
            )
        return place

    def our_place(self, settings: NtfSettings, folder: Path) -> StorePlace:
        return place_of(settings, folder)

    def open(self, place: StorePlace, *, skip_broken_lines: bool) -> OpenedStore[NtfMemoryStore]:
        return open_place(place, skip_broken_lines=skip_broken_lines)

    def write_logs(self, folder: Path, store: NtfMemoryStore, progress: Progress) -> None:
        fill_ntf_folder(folder, store, progress)

    async def write_rows(self, place: StorePlace, store: NtfMemoryStore, progress: Progress) -> None:
        await fill_place(place, store, progress)

    def shared_with_reference(self, used: StorePlace) -> bool:
        return used.url is not None

    def notes_on_place(self, used: StorePlace) -> Sequence[str]:
        return database_notes(used)

    def import_steps(
        self, opened: OpenedStore[NtfMemoryStore], reference: StorePlace, used: StorePlace
    ) -> Sequence[Step]:
        if opened.store is not None:
            return super().import_steps(opened, reference, used)
        text = f"bring the tables of {used.schema} up to date, and make ours beside them"
        return [Step(text, lambda: update_tables(used))]

    def hand_over(
        self, opened: OpenedStore[NtfMemoryStore], ours: StorePlace, target: Path, data: Path
    ) -> StorePlace:
        if opened.store is None:
            self.plan.notes.append(
                "the tables in PostgreSQL are the reference's own, and are used by it as they are"
            )
            return ours
        self.plan.next_commands[:0] = [
            f"set db_connection in {target / INI_FILE}: newer versions of the reference keep all in PostgreSQL",
            self.reference_command("database import", target, data),
        ]
        return super().hand_over(opened, ours, target, data)

    def direct_note(self, count: int) -> str:
        return (
            f"{count} of the subscriptions are direct notifications, which the reference does not know: their "
            "devices get no pushes until they subscribe in the old way"
        )

    def refuse_back_in_place(self, file: Path, ours: StorePlace) -> None:
        if ours.embedded or file.name != INI_FILE:
            raise StoreError(
                "the reference reads an INI file, and PostgreSQL or logs: name new folders for them with --to and "
                "--to-data"
            )
        if not ours.in_database and any(map(has_content, change_logs(ours.folder).values())):
            raise StoreError(
                "Tocsin was killed: `tocsin ntf start --maintenance` brings the reference's logs up to date"
            )
