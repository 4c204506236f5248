"""A move between two servers: what was found, what will happen, doing it, and counting afterwards."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.errors import ConfigError, StoreError
from tocsin.operate.router_files import CREDENTIAL_FILES
from tocsin.transport.credential_files import AUTHORITY_KEY, LEAF_KEY

_PRIVATE: Final = frozenset({AUTHORITY_KEY, LEAF_KEY})
_CONNECT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Step:
    text: str
    """What is done, in the infinitive."""
    do: Callable[[], None]


@dataclass(slots=True)
class Plan:
    found: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is different afterwards."""
    verify: Callable[[], str] = lambda: ""
    """Raises ConfigError or StoreError if what is there is not what was; else a sentence."""
    next_commands: list[str] = field(default_factory=list)
    back: list[str] = field(default_factory=list)

    def carry_out(self, *, dry_run: bool) -> ExitCode:
        _print("Found", self.found)
        steps = [f"{number}. {step.text}" for number, step in enumerate(self.steps, start=1)]
        _print("What will happen", steps or ["nothing is written: the server can be used where it is"])
        _print("To know", self.notes)
        if dry_run:
            print("Nothing was changed: --dry-run.")
            return ExitCode.OK
        for step in self.steps:
            step.do()
        print(f"Done and verified: {self.verify()}")
        _print("Next", self.next_commands)
        _print("To go back", self.back)
        return ExitCode.OK


def _print(title: str, lines: Iterable[str]) -> None:
    lines = list(lines)
    if lines:
        print(f"{title}:")
        for line in lines:
            print(f"  {line}")


def add_migrate_arguments(parser: argparse.ArgumentParser, folder: Path, data: str) -> None:
    """`data` says which folder of the store is taken if none is named."""
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        default=folder,
        metavar="DIR",
        help=f"folder of settings and certificates (default {folder})",
    )
    parser.add_argument(
        "--from-data",
        dest="source_data",
        type=Path,
        metavar="DIR",
        help=f"folder of the store (default {data})",
    )
    parser.add_argument(
        "--to",
        dest="target",
        type=Path,
        metavar="DIR",
        help="new folder for settings and certificates (default: stay where they are, and only check)",
    )
    parser.add_argument(
        "--to-data",
        dest="target_data",
        type=Path,
        metavar="DIR",
        help="new folder for the store; goes with --to",
    )
    parser.add_argument("--back", action="store_true", help="from Tocsin to the reference")
    parser.add_argument("--dry-run", action="store_true", help="say what would happen and change nothing")
    parser.add_argument(
        "--ignore-running",
        action="store_true",
        help="go on although something listens on the server's port: it must be something else",
    )


def checked_targets(options: argparse.Namespace) -> tuple[Path, Path] | None:
    """Both folders, or neither. Raises ConfigError, also if there is something in them."""
    if options.target is None and options.target_data is None:
        return None
    if options.target is None or options.target_data is None:
        raise ConfigError(
            "--to and --to-data go together: one for settings and certificates, one for the store"
        )
    target, data = options.target.absolute(), options.target_data.absolute()
    for folder in (target, data):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"{folder} is not empty: nothing is overwritten")
    return target, data


def refuse_running(ports: Iterable[int], options: argparse.Namespace, plan: Plan) -> None:
    """A store that changes while it is read cannot be counted. Raises StoreError."""
    if options.ignore_running:
        return
    for port in ports:
        if port and _listens(port):
            text = f"something listens on port {port}: stop the server first"
            if not options.dry_run:
                raise StoreError(f"{text}. --ignore-running goes on if it is another program")
            plan.notes.append(f"{text}; counts may change until then")


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_SECONDS):
            return True
    except OSError:
        return False


def make_folders(config: Path, data: Path, *, embedded: bool = False) -> Step:
    """An embedded PostgreSQL that root starts runs as another user, who must be able to pass through to its files."""
    modes = {config: 0o700, data: 0o711 if embedded and os.geteuid() == 0 else 0o700}

    def do() -> None:
        for folder, mode in modes.items():
            try:
                folder.mkdir(mode=mode, parents=True, exist_ok=True)
                folder.chmod(mode)
            except OSError as error:
                raise ConfigError(f"{folder} cannot be made: {error.strerror}") from error

    return Step(f"make {config} and {data}, which only their owner can read", do)


def copy_credentials(source: Path, target: Path) -> Step:
    names = [name for name in CREDENTIAL_FILES if (source / name).exists()]

    def do() -> None:
        for name in names:
            write_new(target / name, (source / name).read_bytes(), 0o600 if name in _PRIVATE else 0o644)

    return Step(f"copy {', '.join(names)}; keys for their owner only", do)


def copy_files(source: Path, target: Path, names: Iterable[str]) -> Iterator[Step]:
    """Those that are there."""
    there = [name for name in names if (source / name).is_file()]

    def do() -> None:
        for name in there:
            write_new(target / name, (source / name).read_bytes(), 0o600)

    if there:
        yield Step(f"copy {', '.join(there)}", do)


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Raises ConfigError, also if there is such a file."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
