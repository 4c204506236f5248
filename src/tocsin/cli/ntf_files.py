"""What the commands of an NTF router share: where its files are, its credentials and its address."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from tocsin.cli.config_files import add_settings_arguments, found_file
from tocsin.cli.router_files import address_of
from tocsin.config.ntf_ini import INI_FILE, TOML_FILE, load_ntf_settings
from tocsin.config.ntf_settings import NtfSettings
from tocsin.crypto.credentials import Credentials
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.transport.credential_files import read_credentials

FOLDER_VARIABLE: Final = "NTF_SERVER_CFG_PATH"
STORE_VARIABLE: Final = "NTF_SERVER_LOG_PATH"
DEFAULT_FOLDER: Final = Path("/etc/opt/simplex-notifications")
DEFAULT_STORE: Final = Path("/var/opt/simplex-notifications")


def config_folder() -> Path:
    return Path(os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER)


def store_folder() -> Path:
    return Path(os.environ.get(STORE_VARIABLE) or DEFAULT_STORE)


def add_config_argument(parser: argparse.ArgumentParser) -> None:
    where = f"{INI_FILE} or {TOML_FILE} in ${FOLDER_VARIABLE} or {DEFAULT_FOLDER}"
    add_settings_arguments(parser, where, "port=8443")


def config_file(options: argparse.Namespace) -> Path:
    """Raises ConfigError if there are two."""
    return found_file(options.config, config_folder(), INI_FILE, TOML_FILE)


def settings_of(options: argparse.Namespace) -> NtfSettings:
    """From `--set`, the environment, and the file of `--config`."""
    return load_ntf_settings(config_file(options), os.environ, options.set)


def credentials_of(settings: NtfSettings) -> Credentials:
    return read_credentials(
        settings.credentials,
        certificate_file=settings.certificate_file,
        key_file=settings.private_key_file,
        authority_file=settings.authority_file,
    )


def router_address(settings: NtfSettings, fingerprint: bytes) -> RouterAddress:
    """Raises ConfigError if the settings do not name the router's host."""
    return address_of(Scheme.NTF, settings.public_hosts, settings.ports, fingerprint)
