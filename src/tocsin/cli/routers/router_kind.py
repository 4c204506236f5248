"""The description of a router that its commands share, and the options with which an operator names one."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from tocsin.crypto.credentials import Credentials
from tocsin.durable.log_fields import BadLogLine
from tocsin.errors import ConfigError, StoreError
from tocsin.operate.settings.operation_settings import OperationSettings
from tocsin.operate.settings.router_settings import RouterSettings
from tocsin.protocol.addresses import RouterAddress

_SKIP_BROKEN_LINES: Final = "--skip-broken-lines"


S = TypeVar("S", bound=OperationSettings)


@dataclass(frozen=True, slots=True)
class RouterKind(Generic[S]):
    """SMP or NTF: everything that the shared commands need to know about it."""

    settings: RouterSettings[S]
    credentials: Callable[[S], Credentials]
    address: Callable[[S, bytes], RouterAddress]
    """From settings and fingerprint, without a password. Raises ConfigError."""

    @property
    def name(self) -> str:
        return self.settings.router

    @property
    def default_folder_help(self) -> str:
        variable = f"${self.settings.folder_variable} or " if self.settings.folder_variable else ""
        return f"{variable}{self.settings.usual_folder}"

    @property
    def default_store_help(self) -> str:
        variable = f"${self.settings.store_variable} or " if self.settings.store_variable else ""
        return f"{variable}{self.settings.usual_store}"

    def settings_file(self, options: argparse.Namespace) -> Path:
        """The file that `--config` or `--folder` names. Raises ConfigError if there are two."""
        return self.settings.find_file(options.folder or options.config)

    def load_settings(self, options: argparse.Namespace) -> S:
        """Load the settings from the file, the environment, and `--set`. Raises ConfigError."""
        file = self.settings_file(options)
        if not file.exists():
            folder = options.folder or file.parent
            missing = file if folder.exists() else folder
            raise ConfigError(
                f"{missing} does not exist: create a router with `tocsin {self.name} init --folder {folder}`, or name "
                "the folder of an existing one with --folder"
            )
        return self.settings.load(file, os.environ, options.set)


def add_router_arguments(parser: argparse.ArgumentParser, kind: RouterKind[S]) -> None:
    """`--folder` or `--config`, and `--set`."""
    files = f"{kind.settings.ini_file} or {kind.settings.toml_file}"
    which = parser.add_mutually_exclusive_group()
    add_folder_argument(which, kind)
    which.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"the settings file itself, INI or TOML, or its folder (default: {files} in the router's folder)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="override a setting of the file and the environment, for example port=5299; may be repeated",
    )


def add_folder_argument(parser: argparse._ActionsContainer, kind: RouterKind[S]) -> None:
    parser.add_argument(
        "--folder",
        type=Path,
        help=f"the router's folder, with its settings and certificates (default: {kind.default_folder_help})",
    )


def add_broken_lines_argument(parser: argparse.ArgumentParser, *, copied: bool = True) -> None:
    where = "they are copied to files that end in .broken" if copied else "they stay where they are"
    parser.add_argument(
        _SKIP_BROKEN_LINES, action="store_true", help=f"skip lines of the logs that cannot be read; {where}"
    )


@contextmanager
def broken_lines_explained(*, copied: bool = True) -> Iterator[None]:
    """Adds to the error about a broken line how to continue without it."""
    try:
        yield
    except BadLogLine as error:
        where = f"copies them to {error.file}.broken" if copied else f"leaves them in {error.file}"
        raise StoreError(
            f"{error}. Restore the file from a backup, or run the command again with {_SKIP_BROKEN_LINES}: it "
            f"continues without such lines, {where}, and loses the changes they record"
        ) from error
