"""The settings file of a router: where it is, and how it is loaded, described and created."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tocsin.errors import ConfigError
from tocsin.operate.settings.keyed_settings import DescribedSetting, KeyedSettings

S = TypeVar("S")
L = TypeVar("L", covariant=True)


class LoadSettings(Protocol[L]):
    def __call__(self, path: Path, environment: Mapping[str, str], command_line: Iterable[str] = ()) -> L:
        """Raises ConfigError naming the file and line, or the variable, the key, and the expected value."""


@dataclass(frozen=True, slots=True)
class RouterSettings(Generic[S]):
    """One kind of router: its settings file in INI or TOML, and its default folders."""

    router: str
    """As in `tocsin ROUTER start` and in `ROUTER-server.ini`."""
    keyed: KeyedSettings[S]
    defaults: S
    load: LoadSettings[S]
    usual_folder: Path
    usual_store: Path
    folder_variable: str = ""
    """Environment variable that names the folder of settings and certificates; empty if there is none."""
    store_variable: str = ""

    @property
    def ini_file(self) -> str:
        return f"{self.router}-server.ini"

    @property
    def toml_file(self) -> str:
        return f"{self.router}-server.toml"

    @property
    def default_folder(self) -> Path:
        """Where settings and certificates are unless the operator names another folder."""
        return Path(os.environ.get(self.folder_variable) or self.usual_folder)

    @property
    def default_store(self) -> Path:
        return Path(os.environ.get(self.store_variable) or self.usual_store)

    def find_file(self, chosen: Path | None = None) -> Path:
        """Return the chosen file, or the settings file in the chosen or default folder.

        A folder without a settings file gives the path of its INI file, which `load` then reports as missing.
        Raises ConfigError if the folder has two files.
        """
        if chosen is not None and not chosen.is_dir():
            return chosen
        folder = chosen or self.default_folder
        found = [folder / name for name in (self.ini_file, self.toml_file) if (folder / name).exists()]
        if len(found) > 1:
            raise ConfigError(
                f"{folder} has both {self.ini_file} and {self.toml_file}: remove one of them, or choose one with "
                "--config"
            )
        return found[0] if found else folder / self.ini_file

    def describe(self, settings: S) -> list[DescribedSetting]:
        """Every setting with its value and source; passwords are hidden."""
        return self.keyed.describe(settings)

    def new_file(self, chosen: Mapping[str, str], *, toml: bool = False) -> str:
        """A commented file with every key. Keys in `chosen` are set; the others show their defaults.

        `chosen` has the names and texts of INI, also for a TOML file.
        """
        name = self.router.upper()
        heading = (
            f"Settings of an {name} router. Lines with # show the defaults; remove the # to change one.",
            f"An environment variable overrides a key: its name in capitals after TOCSIN_{name}_, for example",
            f"TOCSIN_{name}_PORT. `tocsin {self.router} config show` lists every setting and its source.",
        )
        return self.keyed.new_file(heading, chosen, self.defaults, toml=toml)

    def checked_value(self, section: str, name: str, value: str, where: str) -> Any:
        """The value as the settings have it. Raises ConfigError, which begins with `where`."""
        return self.keyed.checked_value(section, name, value, where)
