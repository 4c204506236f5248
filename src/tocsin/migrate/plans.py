"""The plan of a move: what was found, the steps, and the check afterwards."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tocsin.errors import ConfigError
from tocsin.operate.router_files import CREDENTIAL_FILES
from tocsin.transport.credential_files import AUTHORITY_KEY, LEAF_KEY

_PRIVATE: Final = frozenset({AUTHORITY_KEY, LEAF_KEY})
_CONNECT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class MoveStep:
    text: str
    """Begins with an infinitive: "copy ca.crt"."""
    do: Callable[[], None]


@dataclass(slots=True)
class MovePlan:
    found: list[str] = field(default_factory=list)
    steps: list[MoveStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What will be different afterwards."""
    verify: Callable[[], str] = lambda: ""
    """Describes the result. Raises ConfigError or StoreError if it is not what was moved."""
    next_commands: list[str] = field(default_factory=list)
    back: list[str] = field(default_factory=list)

    def carry_out(self) -> str:
        """Do every step, verify the result, and describe it. Raises ConfigError and StoreError."""
        for step in self.steps:
            step.do()
        return self.verify()


def require_empty(*folders: Path) -> None:
    """Raises ConfigError if a folder exists and contains something."""
    for folder in folders:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(
                f"{folder} is not empty, and nothing is overwritten: name a new or empty folder"
            )


def listening_port(ports: Iterable[int]) -> int | None:
    """The first port on which some program of this machine listens."""
    return next((port for port in ports if port and _listens(port)), None)


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_SECONDS):
            return True
    except OSError:
        return False


def make_folders(config: Path, data: Path, *, embedded: bool = False) -> MoveStep:
    """An embedded PostgreSQL that root starts runs as another user, which must be able to reach its files."""
    modes = {config: 0o700, data: 0o711 if embedded and os.geteuid() == 0 else 0o700}

    def do() -> None:
        for folder, mode in modes.items():
            try:
                folder.mkdir(mode=mode, parents=True, exist_ok=True)
                folder.chmod(mode)
            except OSError as error:
                raise ConfigError(
                    f"{folder} cannot be created: {error.strerror}. Create it yourself, or name another folder"
                ) from error

    return MoveStep(f"create {config} and {data}, readable only by their owner", do)


def copy_credentials(source: Path, target: Path) -> MoveStep:
    names = [name for name in CREDENTIAL_FILES if (source / name).exists()]

    def do() -> None:
        for name in names:
            write_new(target / name, (source / name).read_bytes(), 0o600 if name in _PRIVATE else 0o644)

    return MoveStep(f"copy {', '.join(names)}; keys are readable only by their owner", do)


def copy_files(source: Path, target: Path, names: Iterable[str]) -> Iterator[MoveStep]:
    """Copy those that exist."""
    existing = [name for name in names if (source / name).is_file()]

    def do() -> None:
        for name in existing:
            write_new(target / name, (source / name).read_bytes(), 0o600)

    if existing:
        yield MoveStep(f"copy {', '.join(existing)}", do)


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Raises ConfigError, also if the file exists."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}. Fix this, empty the new folders, and run the command again"
        ) from error
