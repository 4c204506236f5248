"""The settings file that the commands of an SMP router read."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tocsin.cli.routers.config_files import add_settings_arguments
from tocsin.operate.settings.locations import found_file
from tocsin.smp_router.settings import files as locations
from tocsin.smp_router.settings.files import INI_FILE, TOML_FILE, load_smp_settings
from tocsin.smp_router.settings.settings import SmpSettings


def add_config_argument(parser: argparse.ArgumentParser) -> None:
    add_settings_arguments(parser, f"{INI_FILE} or {TOML_FILE} in {locations.DEFAULT_FOLDER}", "port=5299")


def config_file(options: argparse.Namespace) -> Path:
    """Raises ConfigError if there are two."""
    return found_file(options.config, locations.DEFAULT_FOLDER, INI_FILE, TOML_FILE)


def settings_of(options: argparse.Namespace) -> SmpSettings:
    """Load the settings from `--set`, the environment, and the file of `--config`."""
    return load_smp_settings(config_file(options), os.environ, options.set)
