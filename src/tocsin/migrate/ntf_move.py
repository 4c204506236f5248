"""An NTF router's move from the reference to Tocsin, or back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from tocsin.durable.log_files import has_content
from tocsin.errors import ConfigError, StoreError
from tocsin.migrate.moves import Move
from tocsin.migrate.ntf_stores import (
    FOREIGN_PROVIDERS,
    NtfTransfers,
    count_database,
    database_notes,
    place_of,
    update_tables,
)
from tocsin.migrate.plans import MoveStep
from tocsin.migrate.settings import STORE_SECTION
from tocsin.migrate.stores import OpenedStore, StorePlace
from tocsin.ntf_router.settings.files import NTF_FILE, REFERENCE_VAPID_KEY, credentials_of, router_address
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.ntf_router.store.logs.log_reading import change_logs
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.operate.settings.setting_keys import OWN_SECTION
from tocsin.protocol.addresses import RouterAddress


class NtfMove(Move[NtfSettings, NtfMemoryStore]):
    """Both servers can use the operator's PostgreSQL, so a store there stays where it is."""

    file = NTF_FILE
    transfers = NtfTransfers()
    store_needs_targets = "--database and --embedded need --to: the reference's settings are never changed"
    store_not_for_back = (
        "--database and --embedded are not allowed with --back: the settings name the store to read"
    )
    back_in_place = "stop Tocsin, then start the reference: its store is in its own format"
    own_format = "its own format"
    exported_as = "format"
    start_in_place = "ntf-server start"
    other_keys = (REFERENCE_VAPID_KEY,)

    def fingerprint(self, settings: NtfSettings) -> bytes:
        return credentials_of(settings).fingerprint

    def address(self, settings: NtfSettings, fingerprint: bytes) -> RouterAddress:
        return router_address(settings, fingerprint)

    def chosen_store(self) -> Mapping[tuple[str, str], str]:
        if self.request.embedded:
            return {(OWN_SECTION, "store"): "embedded"}
        return {(STORE_SECTION, "db_connection"): self.request.database} if self.request.database else {}

    def store_path_note(self, ini: Path, data: Path) -> str:
        return f"start Tocsin with --set store_path={data}, or with NTF_SERVER_LOG_PATH={data}"

    def notes_on_settings(self, settings: NtfSettings) -> Sequence[str]:
        if settings.apns.key_file is None:
            return ["both servers take the key for Apple from APNS_KEY_FILE and APNS_KEY_ID"]
        if self.request.back:
            return ["the reference takes the key for Apple from APNS_KEY_FILE and APNS_KEY_ID only"]
        return []

    def reference_place(self, settings: NtfSettings, data: Path) -> StorePlace:
        place = place_of(settings, data)
        if place.url and self.chosen_store():
            raise ConfigError(
                "the reference's store is already in PostgreSQL and is used as it is: omit --database and --embedded"
            )
        return place

    def our_place(self, settings: NtfSettings, folder: Path) -> StorePlace:
        return place_of(settings, folder)

    def open(self, place: StorePlace, *, skip_broken_lines: bool) -> OpenedStore[NtfMemoryStore]:
        """Read the store, or only count it if it is in the operator's database."""
        if place.url is not None:
            return asyncio.run(count_database(place))
        left_out = None
        if place.embedded:
            store = asyncio.run(self.transfers.read_database(place))
        else:
            place.require_folder()
            store, left_out = self.transfers.read_logs(
                place.folder, skip_broken_lines=skip_broken_lines, keep_broken_lines=False
            )
        direct = sum(not each.notifier_key for each in store.all_subscriptions())
        foreign = sum(each.device_token.provider in FOREIGN_PROVIDERS for each in store.all_tokens())
        notes = (left_out,) if left_out else ()
        return OpenedStore(self.transfers.totals(store), store, notes, direct, foreign)

    def shared_with_reference(self, used: StorePlace) -> bool:
        return used.url is not None

    def notes_on_place(self, used: StorePlace) -> Sequence[str]:
        return database_notes(used)

    def import_steps(
        self, opened: OpenedStore[NtfMemoryStore], reference: StorePlace, used: StorePlace
    ) -> Sequence[MoveStep]:
        if opened.store is not None:
            return super().import_steps(opened, reference, used)
        text = f"bring the tables of {used.schema} up to date, and create Tocsin's beside them"
        return [MoveStep(text, lambda: update_tables(used))]

    def plan_export(
        self, opened: OpenedStore[NtfMemoryStore], ours: StorePlace, target: Path, data: Path
    ) -> StorePlace:
        if opened.store is None:
            self.plan.notes.append(
                "the tables in PostgreSQL are the reference's own, and it uses them as they are"
            )
            return ours
        self.plan.next_commands[:0] = [
            f"set db_connection in {target / NTF_FILE.ini_file}: the reference keeps its store in PostgreSQL",
            f"{self.reference_command('database import', target, data)} (6.5). 7.0 cannot read logs: use "
            f"`tocsin ntf store import --logs {data} --database URL` for it",
        ]
        return super().plan_export(opened, ours, target, data)

    def direct_note(self, count: int) -> str:
        return (
            f"{count} subscriptions are for direct notifications, which the reference does not support: their "
            "devices get no pushes until they subscribe again"
        )

    def refuse_back_in_place(self, file: Path, ours: StorePlace) -> None:
        if ours.embedded or file.name != NTF_FILE.ini_file:
            raise StoreError(
                "the reference reads only an INI file, and PostgreSQL or logs: name new folders for them with --to "
                "and --to-data"
            )
        if not ours.in_database and any(map(has_content, change_logs(ours.folder).values())):
            raise StoreError(
                f"{ours.folder} has changes in files that the reference does not read (Tocsin was killed): run "
                "`tocsin ntf start --maintenance`, which brings the reference's logs up to date"
            )
