"""`tocsin smp init`: certificates and settings of a new router."""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path
from typing import Final

from tocsin.cli.routers.config_files import FORMATS, INI, TOML
from tocsin.crypto.credentials import CertificateAlgorithm
from tocsin.errors import ConfigError
from tocsin.operate.router_files import (
    ALGORITHMS,
    CREDENTIAL_FILES,
    KEEP_AUTHORITY_KEY,
    make_router,
    refuse_existing_router,
)
from tocsin.protocol.addresses import parse_host
from tocsin.smp_router.settings.files import (
    DEFAULT_FOLDER,
    DEFAULT_STORE,
    INI_FILE,
    TOML_FILE,
    checked_value,
    load_smp_settings,
    new_ini,
    new_toml,
    router_address,
)

NAME = "init"
SUMMARY = "make certificates and settings for a new router"
DESCRIPTION = (
    "Makes an offline certificate authority, whose fingerprint is the router's identity, a certificate for TLS, and "
    "a commented settings file with every key. Nothing that exists is overwritten. Prints the router's address."
)
EXAMPLE = "tocsin smp init --host smp.example.com --random-password"

_NEW_FILES: Final = {INI: (INI_FILE, new_ini), TOML: (TOML_FILE, new_toml)}
_RANDOM_PASSWORD_BYTES = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", required=True, help="the router's host name or IP address; several separated by commas"
    )
    parser.add_argument("--port", default="5223", help="port to listen on; several by commas (default 5223)")
    parser.add_argument(
        "--folder",
        type=Path,
        default=DEFAULT_FOLDER,
        help=f"for certificates and settings (default {DEFAULT_FOLDER})",
    )
    parser.add_argument(
        "--store", type=Path, default=DEFAULT_STORE, help=f"folder for the logs (default {DEFAULT_STORE})"
    )
    parser.add_argument(
        "--algorithm", choices=ALGORITHMS, default="ED25519", help="of the certificates (default ED25519)"
    )
    password = parser.add_mutually_exclusive_group()
    password.add_argument(
        "--password", help="needed to create queues; other users of this machine may see it"
    )
    password.add_argument("--random-password", action="store_true", help="the same, chosen by chance")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=INI,
        help="of the settings file; ini is the reference's and the default",
    )
    parser.add_argument("--dry-run", action="store_true", help="check and tell what would be made")


def run(options: argparse.Namespace) -> int:
    folder: Path = options.folder
    values = _chosen_values(options)
    refuse_existing_router(folder, INI_FILE, TOML_FILE)
    settings_file, new_file = _NEW_FILES[options.format]
    files = ", ".join((*CREDENTIAL_FILES, settings_file))
    if options.dry_run:
        print(f"would make in {folder}: {files}")
        return 0
    host, algorithm = values["host"].split(",")[0], CertificateAlgorithm(options.algorithm)
    fingerprint = make_router(folder, settings_file, new_file(values), host, algorithm)
    try:
        options.store.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{options.store}: {error.strerror}") from error
    settings = load_smp_settings(folder / settings_file, {})
    print(f"Made in {folder}: {files}")
    print(KEEP_AUTHORITY_KEY)
    if settings.create_password is not None:
        print(
            f"Address for those who may create queues: {router_address(settings, fingerprint, with_password=True)}"
        )
    print(f"Address: {router_address(settings, fingerprint, with_password=False)}")
    return 0


def _chosen_values(options: argparse.Namespace) -> dict[str, str]:
    hosts = checked_value("TRANSPORT", "host", options.host, "--host")
    values = {
        "host": ",".join(parse_host(host) for host in hosts),
        "port": options.port,
        "store_path": str(options.store.absolute()),
    }
    password = secrets.token_urlsafe(_RANDOM_PASSWORD_BYTES) if options.random_password else options.password
    if password is not None:
        values["create_password"] = checked_value("AUTH", "create_password", password, "--password")
    checked_value("TRANSPORT", "port", options.port, "--port")
    return values
