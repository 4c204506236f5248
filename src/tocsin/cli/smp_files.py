"""What the commands of an SMP router share: where its files are, and its address."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from tocsin.cli.config_files import add_settings_arguments, found_file
from tocsin.cli.router_files import address_of
from tocsin.config.smp_ini import INI_FILE, TOML_FILE, load_smp_settings
from tocsin.config.smp_settings import SmpSettings
from tocsin.protocol.addresses import RouterAddress, Scheme

DEFAULT_FOLDER: Final = Path("/etc/opt/simplex")
DEFAULT_STORE: Final = Path("/var/opt/simplex")


def add_config_argument(parser: argparse.ArgumentParser) -> None:
    add_settings_arguments(parser, f"{INI_FILE} or {TOML_FILE} in {DEFAULT_FOLDER}", "port=5299")


def config_file(options: argparse.Namespace) -> Path:
    """Raises ConfigError if there are two."""
    return found_file(options.config, DEFAULT_FOLDER, INI_FILE, TOML_FILE)


def settings_of(options: argparse.Namespace) -> SmpSettings:
    """From `--set`, the environment, and the file of `--config`."""
    return load_smp_settings(config_file(options), os.environ, options.set)


def router_address(settings: SmpSettings, fingerprint: bytes, *, with_password: bool) -> RouterAddress:
    """Raises ConfigError if the settings do not name the router's host."""
    password = settings.create_password if with_password else None
    return address_of(Scheme.SMP, settings.public_hosts, settings.ports, fingerprint, password)
