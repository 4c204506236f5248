"""An SMP router's move from the reference to Tocsin, or back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tocsin.durable.log_fields import BadLogLine
from tocsin.durable.log_files import replace_lines
from tocsin.errors import ConfigError, StoreError
from tocsin.migrate.moves import Move
from tocsin.migrate.plans import MovePlan, MoveStep
from tocsin.migrate.settings import NOTHING_KEPT, STORE_SECTION, AdaptedSettings, with_values
from tocsin.migrate.smp_stores import SMP_SCHEMA, SmpTransfers
from tocsin.migrate.stores import OpenedStore, StorePlace, Totals
from tocsin.operate.settings.ini_files import parse_ini, read_text
from tocsin.operate.settings.setting_keys import OWN_SECTION
from tocsin.protocol.addresses import RouterAddress
from tocsin.smp_router.settings.files import SMP_FILE, router_address
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.statistics.statistics_lines import parse_statistics
from tocsin.smp_router.store.logs.log_reading import change_logs
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.transport.credential_files import read_credentials

STATISTICS_FILE: Final = "smp-server-stats.log"
DATABASE: Final = "database"
REFERENCE_SCHEMA: Final = "smp_server"
_STORES: Final = ("store_queues", "store_messages")


class SmpMove(Move[SmpSettings, SmpMemoryStore]):
    """The reference keeps logs or uses PostgreSQL, and so does Tocsin. Their tables are different."""

    file = SMP_FILE
    transfers = SmpTransfers()
    store_needs_targets = "--database needs --to and --to-data: the reference's settings are never changed"
    store_not_for_back = ""
    back_in_place = "stop Tocsin, then start the reference: its files are in its own formats"
    own_format = "its own formats"
    exported_as = "store"
    start_in_place = "start the reference"

    def make_plan(self) -> MovePlan:
        """If the settings name the reference's tables, the plan or the error says what they are."""
        tables = self._tables()
        if tables is None:
            return super().make_plan()
        found = _described(tables)
        if self.request.target is None and self._reads_tables():
            raise ConfigError(
                "the store is in the reference's tables, which Tocsin copies into logs or into its own tables: name "
                f"new folders with --to and --to-data, and --database for tables. Found: {found}"
            )
        try:
            plan = super().make_plan()
        except ConfigError as error:
            raise ConfigError(f"{error}. Found: {found}") from None
        except StoreError as error:
            raise StoreError(f"{error}. Found: {found}") from None
        plan.found.append(found)
        return plan

    def _store_settings(self) -> Mapping[str, str]:
        """Return the settings of the store section of the reference's server."""
        try:
            entries = parse_ini(read_text(self.source / self.file.ini_file), "").entries
        except ConfigError:
            return {}
        return {each.key: each.value for each in entries if each.section == STORE_SECTION}

    def _tables(self) -> StorePlace | None:
        """The reference's tables, without a URL if the settings do not name one; None if it keeps logs."""
        values = {} if self.request.back else self._store_settings()
        if DATABASE not in (values.get(key) for key in _STORES):
            return None
        schema = values.get("db_schema") or REFERENCE_SCHEMA
        return StorePlace(self._source_data(), values.get("db_connection") or None, schema)

    def _reads_tables(self) -> bool:
        """Whether all is in the tables. Messages may also be in a journal, which Tocsin does not read."""
        tables, values = self._tables(), self._store_settings()
        return (
            tables is not None and tables.in_database and all(values.get(key) == DATABASE for key in _STORES)
        )

    def read_as(self) -> Mapping[tuple[str, str], str]:
        return {(STORE_SECTION, key): "memory" for key in _STORES} if self._reads_tables() else {}

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
        return self._tables() or StorePlace(data)

    def our_place(self, settings: SmpSettings, folder: Path) -> StorePlace:
        if settings.database_url is not None:
            return StorePlace(folder, settings.database_url, SMP_SCHEMA)
        if settings.store is None:
            raise StoreError(NOTHING_KEPT)
        return StorePlace(folder)

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

    def plan_export(
        self, opened: OpenedStore[SmpMemoryStore], ours: StorePlace, target: Path, data: Path
    ) -> StorePlace:
        if self.request.database is None:
            place = super().plan_export(opened, ours, target, data)
        else:
            place = StorePlace(data, self.request.database, REFERENCE_SCHEMA)
            asyncio.run(self.transfers.require_empty_database(place))
            self.plan.found.append(_described(place))
            self.plan.steps.append(self._rows_step(opened, place))
        if (ours.folder / STATISTICS_FILE).is_file():
            text = f"write {STATISTICS_FILE} as the reference reads it, line by line"
            self.plan.steps.append(MoveStep(text, lambda: _rewrite_statistics(data / STATISTICS_FILE)))
        return place

    def for_reference(self, adapted: AdaptedSettings) -> AdaptedSettings:
        """With --database, the reference finds its store in its tables."""
        url = self.request.database
        if url is None:
            return adapted
        values = {"enable": "on", "store_queues": DATABASE, "store_messages": DATABASE}
        values |= {"db_connection": url, "db_schema": REFERENCE_SCHEMA}
        named = {(STORE_SECTION, key): value for key, value in values.items()}
        return replace(adapted, text=with_values(adapted.text, named))

    def store_line(self, place: StorePlace, totals: Totals) -> str:
        if self.request.back:
            return f"store: {totals}"
        return f"store {place if place.in_database else place.folder}: {totals}"

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
        if _is_old(ours.folder / STATISTICS_FILE):
            raise StoreError(
                f"{ours.folder / STATISTICS_FILE} is of an older Tocsin, and the reference would not start on it: run "
                "`tocsin smp start --maintenance`, which writes it as the reference reads it"
            )


def _described(tables: StorePlace) -> str:
    """Describe the reference's tables, or say why they cannot be read."""
    if tables.url is None:
        return "no db_connection in [STORE_LOG], so the database was not looked at"
    from tocsin.migrate.smp_reference_database import describe_reference_database  # needs asyncpg

    try:
        return asyncio.run(describe_reference_database(tables.url, tables.schema))
    except (StoreError, OSError, ValueError) as error:
        return f"the database could not be looked at ({type(error).__name__})"


def _rewrite_statistics(file: Path) -> None:
    """The reference does not start on other lines, such as those of older versions of Tocsin."""
    try:
        record = parse_statistics(file.read_text("utf-8"))
    except ValueError:
        file.unlink()  # a copy: the reference starts at zero
        return
    replace_lines(file, (line.encode() for line in record.lines()))


def _is_old(file: Path) -> bool:
    """Whether the file has the line of older versions of Tocsin that the reference does not know."""
    return file.is_file() and any(line.startswith(b"ntfCount=") for line in file.read_bytes().splitlines())
