"""The shape of a move, from the reference to Tocsin and back. What a router adds is in a module of its own."""

from __future__ import annotations

import argparse
import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

from tocsin.cli.routers.broken_lines import hint_at_broken_lines
from tocsin.cli.routers.store_transfers import progress_bar
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.durable.transfers import Progress
from tocsin.errors import ConfigError, StoreError
from tocsin.migrate.plans import (
    Plan,
    Step,
    checked_targets,
    copy_credentials,
    copy_files,
    make_folders,
    refuse_running,
    write_new,
)
from tocsin.migrate.settings import AdaptedSettings, adapted_ini, reference_ini
from tocsin.migrate.stores import OpenedStore, StorePlace, Totals
from tocsin.operate.settings.locations import found_file
from tocsin.operate.settings.setting_keys import OWN_SECTION, SettingKey
from tocsin.protocol.addresses import RouterAddress
from tocsin.transport.credential_files import read_credentials


class MovedSettings(Protocol):
    @property
    def ports(self) -> Sequence[int]: ...
    @property
    def public_hosts(self) -> Sequence[str]: ...
    @property
    def credentials(self) -> Path: ...
    @property
    def store(self) -> Path | None: ...


S = TypeVar("S", bound=MovedSettings)
W = TypeVar("W")


class Move(ABC, Generic[S, W]):
    """Of one router, with its settings and its store as it is in memory."""

    router: ClassVar[str]
    """As in the commands `tocsin ROUTER` and `ROUTER-server`."""
    ini_file: ClassVar[str]
    toml_file: ClassVar[str]
    keys: ClassVar[Sequence[SettingKey]]

    # How this router's operator is told
    store_needs_targets: ClassVar[str]
    """A store was chosen, but no new folders."""
    store_is_for_the_way_there: ClassVar[str]
    """A store was chosen on the way back."""
    back_in_place: ClassVar[str]
    own_format: ClassVar[str]
    """Of the reference's store."""
    exported_as: ClassVar[str]
    start_in_place: ClassVar[str]

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.source: Path = options.source.absolute()
        self.plan = Plan()

    def run(self) -> ExitCode:
        """Raises ConfigError and StoreError."""
        with hint_at_broken_lines(copied=False):
            if self.options.back:
                self._back()
            else:
                self._forward()
        return self.plan.carry_out(dry_run=self.options.dry_run)

    # Settings and identity

    @abstractmethod
    def load(self, file: Path, chosen: Iterable[str] = ()) -> S:
        """Whatever the environment says: it is not that of the server."""

    @abstractmethod
    def fingerprint(self, settings: S) -> bytes: ...

    @abstractmethod
    def address(self, settings: S, fingerprint: bytes) -> RouterAddress: ...

    @abstractmethod
    def chosen_store(self) -> Mapping[tuple[str, str], str]:
        """What the options choose, by section and key; empty if they do not."""

    @abstractmethod
    def store_path_note(self, ini: Path, data: Path) -> str:
        """How Tocsin is told where the store is, if the settings say something else."""

    def notes_on_settings(self, settings: S) -> Sequence[str]:
        return ()

    # The store

    @abstractmethod
    def default_data(self) -> Path: ...

    def data_in_place(self, settings: S) -> Path:
        return self._source_data()

    @abstractmethod
    def reference_place(self, settings: S, data: Path) -> StorePlace:
        """Where the reference keeps its store. Raises StoreError if it keeps nothing."""

    @abstractmethod
    def our_place(self, settings: S, folder: Path) -> StorePlace:
        """Raises StoreError if nothing is kept."""

    @abstractmethod
    def open(self, place: StorePlace, *, skip_broken_lines: bool) -> OpenedStore[W]:
        """Raises StoreError."""

    @abstractmethod
    def write_logs(self, folder: Path, store: W, progress: Progress) -> None: ...

    @abstractmethod
    async def write_rows(self, place: StorePlace, store: W, progress: Progress) -> None: ...

    @abstractmethod
    def direct_note(self, count: int) -> str:
        """What the reference makes of direct notifications."""

    @abstractmethod
    def refuse_back_in_place(self, file: Path, ours: StorePlace) -> None:
        """Raises StoreError if the reference would not find everything."""

    def store_line(self, place: StorePlace, totals: Totals) -> str:
        return f"store {place}: {totals}"

    def shared_with_reference(self, used: StorePlace) -> bool:
        """Whether the reference finds there what Tocsin has written."""
        return False

    def notes_on_place(self, used: StorePlace) -> Sequence[str]:
        """What the reference will find of ours."""
        return ()

    def import_steps(self, opened: OpenedStore[W], reference: StorePlace, used: StorePlace) -> Sequence[Step]:
        """What is to be done so that our router finds everything where it will look for it."""
        if used.in_database:
            return [self._rows_step(opened, used)]
        return [] if used.folder == reference.folder else [self._logs_step(opened, used.folder)]

    def hand_over(self, opened: OpenedStore[W], ours: StorePlace, target: Path, data: Path) -> StorePlace:
        """Adds to the plan what brings the store to the reference; where that finds it."""
        self.plan.steps.append(self._logs_step(opened, data))
        return StorePlace(data)

    # To Tocsin

    def _forward(self) -> None:
        targets = checked_targets(self.options)
        if targets is not None:
            self._to_new_folders(*targets)
        elif self.chosen_store():
            raise ConfigError(self.store_needs_targets)
        else:
            self._in_place()

    def _in_place(self) -> None:
        """Tocsin in the reference's folders."""
        plan, ini = self.plan, self.source / self.ini_file
        settings = self.load(ini)
        data = self.data_in_place(settings)
        if settings.store != data:
            plan.notes.append(self.store_path_note(ini, data))
        used = self.reference_place(settings, data)
        fingerprint = self.fingerprint(settings)
        opened = self._opened(ini, settings, fingerprint, used)
        plan.steps += self.import_steps(opened, used, used)
        plan.verify = lambda: self.verified_in_place(used, opened.totals, fingerprint)
        plan.next_commands = [f"tocsin {self.router} start --config {self.source}", "tocsin doctor"]
        plan.back = [self.back_in_place]

    def _to_new_folders(self, target: Path, target_data: Path) -> None:
        plan, ini, data = self.plan, self.source / self.ini_file, self._source_data()
        reference = self.reference_place(adapted_ini(ini, self.keys, {}).loaded(ini, self.load), data)
        values = {(OWN_SECTION, "store_path"): str(target_data), **self.chosen_store()}
        adapted = adapted_ini(ini, self.keys, values)
        settings = adapted.loaded(ini, self.load)
        used = self.our_place(settings, target_data)
        fingerprint = read_credentials(self.source).fingerprint
        opened = self._opened(ini, settings, fingerprint, reference)
        plan.notes += [*adapted.notes, *self.notes_on_place(used)]
        plan.steps = [
            make_folders(target, target_data, embedded=used.embedded),
            copy_credentials(self.source, target),
            self._settings_step(target, adapted),
            *copy_files(data, target_data, self._statistics()),
            *self.import_steps(opened, reference, used),
        ]
        plan.verify = lambda: self._verified(used, opened.totals, target, fingerprint)
        plan.next_commands = [f"tocsin {self.router} start --config {target}", "tocsin doctor"]
        stays = "" if self.shared_with_reference(used) else ": it has what was there before the move"
        plan.back = [
            f"tocsin migrate {self.router} --back --from {target} --to NEW --to-data NEW-DATA",
            f"or start the reference in {self.source} again{stays}",
        ]

    def verified_in_place(self, used: StorePlace, totals: Totals, fingerprint: bytes) -> str:
        return self._verified(used, totals, self.source, fingerprint)

    def _verified(self, used: StorePlace, totals: Totals, folder: Path, fingerprint: bytes) -> str:
        settings = self.load(found_file(folder, folder, self.ini_file, self.toml_file))
        _require_identity(folder, self.fingerprint(settings), fingerprint)
        return f"the same identity, {self._counted(used, totals)}"

    # To the reference

    def _back(self) -> None:
        if self.chosen_store():
            raise ConfigError(self.store_is_for_the_way_there)
        plan, targets = self.plan, checked_targets(self.options)
        file = found_file(self.source, self.source, self.ini_file, self.toml_file)
        given = self.options.source_data
        settings = self.load(file, [f"store_path={given.absolute()}"] if given else [])
        fingerprint = self.fingerprint(settings)
        ours = self.our_place(settings, settings.store or self.default_data())
        opened = self._opened(file, settings, fingerprint, ours)
        if opened.foreign_tokens:
            raise StoreError(
                f"{opened.foreign_tokens} of the device tokens are of Web Push, and the reference reads no store with "
                "such tokens: delete them first, as docs/howto/unifiedpush.md says; their devices get no pushes there"
            )
        if opened.direct:
            plan.notes.append(self.direct_note(opened.direct))
        if targets is None:
            self.refuse_back_in_place(file, ours)
            plan.verify = lambda: f"the reference finds {opened.totals} in {self.own_format}"
            plan.next_commands = [self.start_in_place]
            return
        target, data = targets
        adapted = reference_ini(file, self.keys, settings)
        plan.notes += adapted.notes
        plan.steps = [
            make_folders(target, data),
            copy_credentials(settings.credentials, target),
            self._settings_step(target, adapted),
            *([] if settings.store is None else copy_files(settings.store, data, self._statistics())),
        ]
        plan.next_commands = [self.reference_command("start", target, data)]
        used = self.hand_over(opened, ours, target, data)
        plan.verify = lambda: self._verified_for_reference(used, opened.totals, target, fingerprint)
        plan.back = [f"start Tocsin with {file} again: it has what was there before the move"]

    def reference_command(self, command: str, target: Path, data: Path) -> str:
        name = self.router.upper()
        folders = f"{name}_SERVER_CFG_PATH={target} {name}_SERVER_LOG_PATH={data}"
        return f"{folders} {self.router}-server {command}"

    def _verified_for_reference(
        self, used: StorePlace, totals: Totals, target: Path, fingerprint: bytes
    ) -> str:
        _require_identity(target, read_credentials(target).fingerprint, fingerprint)
        return f"the same identity, {self._counted(used, totals)} in the reference's {self.exported_as}"

    # Both ways

    def _source_data(self) -> Path:
        folder: Path = self.options.source_data or self.default_data()
        return folder.absolute()

    def _statistics(self) -> tuple[str, str]:
        return f"{self.router}-server-stats.log", f"{self.router}-server-stats.daily.log"

    def _opened(self, file: Path, settings: S, fingerprint: bytes, place: StorePlace) -> OpenedStore[W]:
        """Tells what was found, too. Raises StoreError if the server runs."""
        plan = self.plan
        refuse_running(settings.ports, self.options, plan)
        opened = self.open(place, skip_broken_lines=self.options.skip_broken_lines)
        named = bool(settings.public_hosts)
        address = self.address(settings, fingerprint) if named else "its address has no host yet"
        plan.found += [
            f"settings {file}, certificates: {address}",
            self.store_line(place, opened.totals),
        ]
        plan.notes += [*opened.notes, *self.notes_on_settings(settings)]
        return opened

    def _counted(self, used: StorePlace, totals: Totals) -> Totals:
        """Raises StoreError if it is not what was moved."""
        found = self.open(used, skip_broken_lines=True).totals
        if found != totals:
            raise StoreError(f"there are {found} instead of {totals}")
        return found

    def _settings_step(self, target: Path, adapted: AdaptedSettings) -> Step:
        path = target / self.ini_file
        return Step(f"write {path}", lambda: write_new(path, adapted.text.encode(), 0o600))

    def _logs_step(self, opened: OpenedStore[W], folder: Path) -> Step:
        def write() -> None:
            assert opened.store is not None
            with progress_bar("Writing logs", opened.totals) as progress:
                self.write_logs(folder, opened.store, progress)

        return Step(f"write {opened.totals} to logs in {folder}", write)

    def _rows_step(self, opened: OpenedStore[W], used: StorePlace) -> Step:
        def write() -> None:
            assert opened.store is not None
            with progress_bar("Writing to PostgreSQL", opened.totals) as progress:
                asyncio.run(self.write_rows(used, opened.store, progress))

        return Step(f"write {opened.totals} to PostgreSQL, schema {used.schema}, all or nothing", write)


def _require_identity(folder: Path, found: bytes, wanted: bytes) -> None:
    if found != wanted:
        raise ConfigError(f"{folder} has another identity than the server that was moved")
