"""An SMP router's move from the reference to Tocsin, or back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from tocsin.durable.log_fields import BadLogLine
from tocsin.errors import StoreError
from tocsin.migrate.moves import Move
from tocsin.migrate.settings import NOTHING_KEPT
from tocsin.migrate.smp_stores import SMP_SCHEMA, SmpTransfers
from tocsin.migrate.stores import OpenedStore, StorePlace, Totals
from tocsin.operate.settings.setting_keys import OWN_SECTION
from tocsin.protocol.addresses import RouterAddress
from tocsin.smp_router.settings.files import SMP_FILE, router_address
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.store.logs.log_reading import change_logs
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.transport.credential_files import read_credentials


class SmpMove(Move[SmpSettings, SmpMemoryStore]):
    """The reference keeps logs; Tocsin keeps logs or uses PostgreSQL."""

    file = SMP_FILE
    transfers = SmpTransfers()
    store_needs_targets = "--database needs --to and --to-data: the reference's settings are never changed"
    store_not_for_back = "--database is not allowed with --back: the settings name the store to read"
    back_in_place = "stop Tocsin, then start the reference: its files are in its own formats"
    own_format = "its own formats"
    exported_as = "logs"
    start_in_place = "start the reference"

    def fingerprint(self, settings: SmpSettings) -> bytes:
        return read_credentials(settings.credentials).fingerprint

    def address(self, settings: SmpSettings, fingerprint: bytes) -> RouterAddress:
        return router_address(settings, fingerprint)

    def chosen_store(self) -> Mapping[tuple[str, str], str]:
        url = self.request.database
        return {} if url is None else {(OWN_SECTION, "database_url"): url}

    def store_path_note(self, ini: Path, data: Path) -> str:
        return f"set store_path to {data} in [TOCSIN] of {ini}, or start Tocsin with --set store_path={data}"

    def data_in_place(self, settings: SmpSettings) -> Path:
        return self.request.source_data or settings.store or SMP_FILE.default_store

    def reference_place(self, settings: SmpSettings, data: Path) -> StorePlace:
        if settings.store is None:
            raise StoreError(NOTHING_KEPT)
        return StorePlace(data)

    def our_place(self, settings: SmpSettings, folder: Path) -> StorePlace:
        if settings.database_url is None:
            return self.reference_place(settings, folder)
        return StorePlace(folder, settings.database_url, SMP_SCHEMA)

    def open(self, place: StorePlace, *, skip_broken_lines: bool) -> OpenedStore[SmpMemoryStore]:
        """A move back in place writes nothing, so it cannot skip broken lines: the reference would find them."""
        back_in_place = self.request.back and self.request.target is None
        left_out = None
        if place.url is not None:
            store = asyncio.run(self.transfers.read_database(place))
        else:
            place.require_folder()
            try:
                store, left_out = self.transfers.read_logs(
                    place.folder,
                    skip_broken_lines=skip_broken_lines and not back_in_place,
                    keep_broken_lines=False,
                )
            except BadLogLine as error:
                if not back_in_place:
                    raise
                raise StoreError(
                    f"{error}. The reference cannot read that line either: name new folders with --to and --to-data, "
                    "and add --skip-broken-lines to write logs without such lines. The changes they record are lost"
                ) from error
        totals = self.transfers.totals(store)
        return OpenedStore(totals, store, (left_out,) if left_out else (), totals.direct)

    def store_line(self, place: StorePlace, totals: Totals) -> str:
        return f"store: {totals}" if self.request.back else f"store {place.folder}: {totals}"

    def direct_note(self, count: int) -> str:
        return (
            f"the reference does not support direct notifications and ignores {count} records of them: their queues "
            "get no notifications until their devices subscribe through the NTF router. They stay in "
            "smp-server-direct.log"
        )

    def verified_in_place(self, used: StorePlace, totals: Totals, fingerprint: bytes) -> str:
        """Nothing was written, so nothing can differ."""
        return f"Tocsin can use the settings, the certificates and {totals}"

    def refuse_back_in_place(self, file: Path, ours: StorePlace) -> None:
        if ours.in_database or file.name != SMP_FILE.ini_file:
            raise StoreError(
                "the reference reads only an INI file and logs: name new folders for them with --to and --to-data"
            )
        if change_logs(ours.folder):
            raise StoreError(
                f"{ours.folder} has changes in files that the reference does not read (Tocsin was killed): run "
                "`tocsin smp start --maintenance`, which writes them to the reference's logs"
            )
