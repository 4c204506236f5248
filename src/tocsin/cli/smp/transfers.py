"""What `tocsin smp store import` and `export` share: where from and where to."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from tocsin.cli.routers.store_transfers import add_ends_arguments
from tocsin.cli.smp.files import add_config_argument, settings_of
from tocsin.errors import ConfigError


class Ends(NamedTuple):
    folder: Path
    database_url: str


def add_transfer_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_argument(parser)
    add_ends_arguments(parser)


def ends_of(options: argparse.Namespace) -> Ends:
    """Raises ConfigError if one of both is not known."""
    settings = settings_of(options)
    folder, url = options.folder or settings.store, options.database or settings.database_url
    if folder is None:
        raise ConfigError("[STORE_LOG] enable is off: say --folder")
    if url is None:
        raise ConfigError("[TOCSIN] database_url is not set: say --database")
    return Ends(folder, url)
