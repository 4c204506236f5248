"""A move between the reference and Tocsin, the same for both routers: planning it in either direction."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Generic, TypeAlias, TypeVar

from tocsin.durable.transfers import Progress
from tocsin.errors import ConfigError, StoreError
from tocsin.migrate.plans import (
    MovePlan,
    MoveStep,
    copy_credentials,
    copy_files,
    listening_port,
    make_folders,
    require_empty,
    write_new,
)
from tocsin.migrate.settings import AdaptedSettings, adapted_ini, reference_ini
from tocsin.migrate.stores import OpenedStore, StorePlace, StoreTransfers, Totals
from tocsin.operate.settings.operation_settings import OperationSettings
from tocsin.operate.settings.router_settings import RouterSettings
from tocsin.operate.settings.setting_keys import OWN_SECTION
from tocsin.protocol.addresses import RouterAddress
from tocsin.transport.credential_files import read_credentials

ProgressBar: TypeAlias = Callable[[str, Iterable[int]], AbstractContextManager[Progress]]
"""Shows a text and how many of the totals are done."""


S = TypeVar("S", bound=OperationSettings)
W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """The operator's choices. All paths are absolute."""

    source: Path
    """Folder of settings and certificates."""
    source_data: Path | None = None
    """Folder of the store."""
    target: Path | None = None
    target_data: Path | None = None
    back: bool = False
    """From Tocsin to the reference."""
    dry_run: bool = False
    ignore_running: bool = False
    skip_broken_lines: bool = False
    database: str | None = field(default=None, repr=False)
    """URL of the PostgreSQL for the store."""
    embedded: bool = False
    """The store goes to an embedded PostgreSQL."""

    def targets(self) -> tuple[Path, Path] | None:
        """Both new folders, or None. Raises ConfigError if only one is named, or if one is not empty."""
        if self.target is None and self.target_data is None:
            return None
        if self.target is None or self.target_data is None:
            raise ConfigError(
                "--to and --to-data go together: name a folder for settings and certificates, and one for the store"
            )
        require_empty(self.target, self.target_data)
        return self.target, self.target_data


class Move(ABC, Generic[S, W]):
    """One router's move: `S` is its settings, `W` its whole store in memory."""

    file: RouterSettings[S]
    transfers: StoreTransfers[W]

    other_keys: ClassVar[tuple[str, ...]] = ()
    """Names of the reference's key files beside its certificates."""

    # Texts for this router's operator
    store_needs_targets: ClassVar[str]
    """The operator chose a store but no new folders."""
    store_not_for_back: ClassVar[str]
    """The operator chose a store for a move back. Empty if that is possible."""
    back_in_place: ClassVar[str]
    own_format: ClassVar[str]
    """The format of the reference's store."""
    exported_as: ClassVar[str]
    start_in_place: ClassVar[str]

    def __init__(self, request: MoveRequest, progress_bar: ProgressBar) -> None:
        self.request = request
        self.source = request.source
        self.progress_bar = progress_bar
        self.plan = MovePlan()

    def make_plan(self) -> MovePlan:
        """Read everything, change nothing. Raises ConfigError and StoreError."""
        if self.request.back:
            self._plan_move_back()
        else:
            self._plan_move_to_tocsin()
        return self.plan

    # Settings and identity

    @abstractmethod
    def fingerprint(self, settings: S) -> bytes: ...

    @abstractmethod
    def address(self, settings: S, fingerprint: bytes) -> RouterAddress: ...

    @abstractmethod
    def chosen_store(self) -> Mapping[tuple[str, str], str]:
        """Settings of the chosen store by section and key; empty if none was chosen."""

    @abstractmethod
    def store_path_note(self, ini: Path, data: Path) -> str:
        """How to point Tocsin to the store if the settings name another folder."""

    def read_as(self) -> Mapping[tuple[str, str], str]:
        """Settings of the reference's that Tocsin reads otherwise than they are written."""
        return {}

    def for_reference(self, adapted: AdaptedSettings) -> AdaptedSettings:
        """Settings for the reference, if the store that the operator chose needs others."""
        return adapted

    def notes_on_settings(self, settings: S) -> Sequence[str]:
        return ()

    # The store

    def data_in_place(self, settings: S) -> Path:
        return self._source_data()

    @abstractmethod
    def reference_place(self, settings: S, data: Path) -> StorePlace:
        """Where the reference keeps its store. Raises StoreError if it keeps nothing."""

    @abstractmethod
    def our_place(self, settings: S, folder: Path) -> StorePlace:
        """Raises StoreError if the settings keep nothing."""

    @abstractmethod
    def open(self, place: StorePlace, *, skip_broken_lines: bool) -> OpenedStore[W]:
        """Raises StoreError."""

    @abstractmethod
    def direct_note(self, count: int) -> str:
        """Warn that the reference has no direct notifications."""

    @abstractmethod
    def refuse_back_in_place(self, file: Path, ours: StorePlace) -> None:
        """Raises StoreError if the reference would not find the whole store."""

    def store_line(self, place: StorePlace, totals: Totals) -> str:
        return f"store {place}: {totals}"

    def shared_with_reference(self, used: StorePlace) -> bool:
        """Whether the reference sees what Tocsin writes there."""
        return False

    def notes_on_place(self, used: StorePlace) -> Sequence[str]:
        """Notes about files or tables of Tocsin that the reference will find."""
        return ()

    def import_steps(
        self, opened: OpenedStore[W], reference: StorePlace, used: StorePlace
    ) -> Sequence[MoveStep]:
        """Bring the store to where Tocsin will look for it."""
        if used.in_database:
            return [self._rows_step(opened, used)]
        return [] if used.folder == reference.folder else [self._logs_step(opened, used.folder)]

    def plan_export(self, opened: OpenedStore[W], ours: StorePlace, target: Path, data: Path) -> StorePlace:
        """Add the steps that bring the store to the reference, and return where it will be."""
        self.plan.steps.append(self._logs_step(opened, data))
        return StorePlace(data)

    # To Tocsin

    def _plan_move_to_tocsin(self) -> None:
        targets = self.request.targets()
        if targets is not None:
            self._plan_new_folders(*targets)
        elif self.chosen_store():
            raise ConfigError(self.store_needs_targets)
        else:
            self._plan_in_place()

    def _plan_in_place(self) -> None:
        """Run Tocsin in the reference's folders."""
        plan, ini = self.plan, self.source / self.file.ini_file
        settings = self._load(ini)
        data = self.data_in_place(settings)
        if settings.store != data:
            plan.notes.append(self.store_path_note(ini, data))
        used = self.reference_place(settings, data)
        fingerprint = self.fingerprint(settings)
        opened = self._opened(ini, settings, fingerprint, used)
        plan.steps += self.import_steps(opened, used, used)
        plan.verify = lambda: self.verified_in_place(used, opened.totals, fingerprint)
        plan.next_commands = [
            f"tocsin {self.file.router} start --folder {self.source}",
            f"tocsin doctor --folder {self.source}",
        ]
        plan.back = [self.back_in_place]

    def _plan_new_folders(self, target: Path, target_data: Path) -> None:
        plan, ini, data = self.plan, self.source / self.file.ini_file, self._source_data()
        reference = self.reference_place(
            adapted_ini(ini, self.file.keyed.keys, self.read_as()).loaded(ini, self._load), data
        )
        values = {(OWN_SECTION, "store_path"): str(target_data), **self.read_as(), **self.chosen_store()}
        adapted = adapted_ini(ini, self.file.keyed.keys, values)
        settings = adapted.loaded(ini, self._load)
        used = self.our_place(settings, target_data)
        fingerprint = read_credentials(self.source).fingerprint
        opened = self._opened(ini, settings, fingerprint, reference)
        plan.notes += [*adapted.notes, *self.notes_on_place(used)]
        plan.steps = [
            make_folders(target, target_data, embedded=used.embedded),
            copy_credentials(self.source, target),
            *copy_files(self.source, target, self.other_keys),
            self._settings_step(target, adapted),
            *copy_files(data, target_data, self._statistics()),
            *self.import_steps(opened, reference, used),
        ]
        plan.verify = lambda: self._verified(used, opened.totals, target, fingerprint)
        plan.next_commands = [
            f"tocsin {self.file.router} start --folder {target}",
            f"tocsin doctor --folder {target}",
        ]
        stays = "" if self.shared_with_reference(used) else ": it has the store as of the move"
        plan.back = [
            f"tocsin migrate {self.file.router} --back --from {target} --to NEW --to-data NEW-DATA",
            f"or start the reference in {self.source} again{stays}",
        ]

    def verified_in_place(self, used: StorePlace, totals: Totals, fingerprint: bytes) -> str:
        return self._verified(used, totals, self.source, fingerprint)

    def _verified(self, used: StorePlace, totals: Totals, folder: Path, fingerprint: bytes) -> str:
        settings = self._load(self.file.find_file(folder))
        _require_identity(folder, self.fingerprint(settings), fingerprint)
        return f"same identity, {self._counted(used, totals)}"

    # To the reference

    def _plan_move_back(self) -> None:
        if self.chosen_store() and (self.store_not_for_back or self.request.target is None):
            raise ConfigError(self.store_not_for_back or self.store_needs_targets)
        plan, targets = self.plan, self.request.targets()
        file = self.file.find_file(self.source)
        given = self.request.source_data
        settings = self._load(file, [f"store_path={given}"] if given else [])
        fingerprint = self.fingerprint(settings)
        ours = self.our_place(settings, settings.store or self.file.default_store)
        opened = self._opened(file, settings, fingerprint, ours)
        if opened.foreign_tokens:
            raise StoreError(
                f"{opened.foreign_tokens} device tokens are for Web Push or Firebase, and the reference cannot read "
                "a store that has such tokens: delete them first, as docs/howto/unifiedpush.md explains. Their devices "
                "get no pushes from the reference"
            )
        if opened.direct:
            plan.notes.append(self.direct_note(opened.direct))
        if targets is None:
            self.refuse_back_in_place(file, ours)
            plan.verify = lambda: f"the reference finds {opened.totals} in {self.own_format}"
            plan.next_commands = [self.start_in_place]
            return
        target, data = targets
        adapted = self.for_reference(reference_ini(file, self.file.keyed.keys, settings))
        plan.notes += adapted.notes
        plan.steps = [
            make_folders(target, data),
            copy_credentials(settings.credentials, target),
            self._settings_step(target, adapted),
            *([] if settings.store is None else copy_files(settings.store, data, self._statistics())),
        ]
        plan.next_commands = [self.reference_command("start", target, data)]
        used = self.plan_export(opened, ours, target, data)
        plan.verify = lambda: self._verified_for_reference(used, opened.totals, target, fingerprint)
        plan.back = [f"start Tocsin with {file} again: it has the store as of the move"]

    def reference_command(self, command: str, target: Path, data: Path) -> str:
        name = self.file.router.upper()
        folders = f"{name}_SERVER_CFG_PATH={target} {name}_SERVER_LOG_PATH={data}"
        return f"{folders} {self.file.router}-server {command}"

    def _verified_for_reference(
        self, used: StorePlace, totals: Totals, target: Path, fingerprint: bytes
    ) -> str:
        _require_identity(target, read_credentials(target).fingerprint, fingerprint)
        return f"same identity, {self._counted(used, totals)} in the reference's {self.exported_as}"

    # Both ways

    def _source_data(self) -> Path:
        return (self.request.source_data or self.file.default_store).absolute()

    def _load(self, file: Path, chosen: Iterable[str] = ()) -> S:
        """Load settings without environment variables: ours are not those of the server."""
        if not file.exists():
            raise ConfigError(f"{file} does not exist: name the folder of the settings with --from")
        return self.file.load(file, {}, chosen)

    def _statistics(self) -> tuple[str, str]:
        return f"{self.file.router}-server-stats.log", f"{self.file.router}-server-stats.daily.log"

    def _opened(self, file: Path, settings: S, fingerprint: bytes, place: StorePlace) -> OpenedStore[W]:
        """Open the store and note in the plan what was found. Raises StoreError if the server runs."""
        plan = self.plan
        self._refuse_running(settings.ports)
        opened = self.open(place, skip_broken_lines=self.request.skip_broken_lines)
        named = bool(settings.public_hosts)
        address = self.address(settings, fingerprint) if named else "the address has no host yet"
        plan.found += [
            f"settings {file}, certificates: {address}",
            self.store_line(place, opened.totals),
        ]
        plan.notes += [*opened.notes, *self.notes_on_settings(settings)]
        return opened

    def _refuse_running(self, ports: Iterable[int]) -> None:
        """A store that changes while it is read cannot be counted. Raises StoreError."""
        port = None if self.request.ignore_running else listening_port(ports)
        if port is None:
            return
        text = f"a program listens on port {port}: stop the server first"
        if not self.request.dry_run:
            raise StoreError(f"{text}, or use --ignore-running if it is another program")
        self.plan.notes.append(f"{text}; counts may change until then")

    def _counted(self, used: StorePlace, totals: Totals) -> Totals:
        """Raises StoreError if the totals differ from what was moved."""
        found = self.open(used, skip_broken_lines=True).totals
        if found != totals:
            raise StoreError(
                f"the new store has {found}, but the old one {totals}: keep using the old one, and run the move again "
                "into new folders while no server runs"
            )
        return found

    def _settings_step(self, target: Path, adapted: AdaptedSettings) -> MoveStep:
        path = target / self.file.ini_file
        return MoveStep(f"write {path}", lambda: write_new(path, adapted.text.encode(), 0o600))

    def _logs_step(self, opened: OpenedStore[W], folder: Path) -> MoveStep:
        def write() -> None:
            assert opened.store is not None
            with self.progress_bar("Writing logs", opened.totals) as progress:
                self.transfers.write_logs(folder, opened.store, progress)

        return MoveStep(f"write {opened.totals} to logs in {folder}", write)

    def _rows_step(self, opened: OpenedStore[W], used: StorePlace) -> MoveStep:
        def write() -> None:
            assert opened.store is not None
            with self.progress_bar("Writing to PostgreSQL", opened.totals) as progress:
                asyncio.run(self.transfers.write_database(used, opened.store, progress))

        return MoveStep(f"write {opened.totals} to PostgreSQL, schema {used.schema}, all or nothing", write)


def _require_identity(folder: Path, found: bytes, wanted: bytes) -> None:
    if found != wanted:
        raise ConfigError(
            f"{folder} has another identity than the server that was moved: copy its certificates again"
        )
