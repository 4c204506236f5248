"""Finds the settings file of a router."""

from __future__ import annotations

from pathlib import Path

from tocsin.errors import ConfigError


def found_file(chosen: Path | None, folder: Path, ini_file: str, toml_file: str) -> Path:
    """Return the chosen file, or the settings file in the chosen or default folder.

    A folder without a settings file gives the path of its INI file. Raises ConfigError if the folder has two files.
    """
    if chosen is not None and not chosen.is_dir():
        return chosen
    where = chosen or folder
    found = [where / name for name in (ini_file, toml_file) if (where / name).exists()]
    if len(found) > 1:
        raise ConfigError(
            f"{where} has both {ini_file} and {toml_file}: remove one of them, or choose one with --config"
        )
    return found[0] if found else where / ini_file
