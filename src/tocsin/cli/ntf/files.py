"""The settings file that the commands of an NTF router read."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tocsin.cli.routers.config_files import add_settings_arguments
from tocsin.ntf_router.settings import locations
from tocsin.ntf_router.settings.files import INI_FILE, TOML_FILE, load_ntf_settings
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.operate.settings.locations import found_file


def add_config_argument(parser: argparse.ArgumentParser) -> None:
    where = f"{INI_FILE} or {TOML_FILE} in ${locations.FOLDER_VARIABLE} or {locations.DEFAULT_FOLDER}"
    add_settings_arguments(parser, where, "port=8443")


def config_file(options: argparse.Namespace) -> Path:
    """Raises ConfigError if there are two."""
    return found_file(options.config, locations.config_folder(), INI_FILE, TOML_FILE)


def settings_of(options: argparse.Namespace) -> NtfSettings:
    """Load the settings from `--set`, the environment, and the file of `--config`."""
    return load_ntf_settings(config_file(options), os.environ, options.set)
