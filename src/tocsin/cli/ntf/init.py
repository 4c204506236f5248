"""`tocsin ntf init`: certificates and settings of a new router."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tocsin import __version__
from tocsin.cli.routers.config_files import FORMATS, INI, TOML
from tocsin.crypto.credentials import CertificateAlgorithm
from tocsin.errors import ConfigError, DecodeError
from tocsin.ntf_router.settings.files import (
    INI_FILE,
    TOML_FILE,
    checked_value,
    load_ntf_settings,
    new_ini,
    new_toml,
)
from tocsin.ntf_router.settings.locations import (
    DEFAULT_FOLDER,
    DEFAULT_STORE,
    FOLDER_VARIABLE,
    STORE_VARIABLE,
    config_folder,
    router_address,
    store_folder,
)
from tocsin.operate.router_files import (
    ALGORITHMS,
    CREDENTIAL_FILES,
    KEEP_AUTHORITY_KEY,
    make_router,
    refuse_existing_router,
)
from tocsin.protocol.addresses import parse_host
from tocsin.wire.base64url import encode_base64url

NAME = "init"
SUMMARY = "make certificates and settings for a new router"
DESCRIPTION = (
    "Makes an offline certificate authority, whose fingerprint is the router's identity, a certificate for TLS, and "
    "a commented settings file with every key. Nothing that exists is overwritten. Prints the router's address."
)
EXAMPLE = "tocsin ntf init --fqdn ntf.example.com"

_NEW_FILES: Final = {INI: (INI_FILE, new_ini), TOML: (TOML_FILE, new_toml)}
_LOOPBACK = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--fqdn", "--host", metavar="FQDN", help="the router's host name")
    parser.add_argument(
        "--ip", default=_LOOPBACK, help=f"its IP address, without a name (default {_LOOPBACK})"
    )
    parser.add_argument("--port", default="443", help="port to listen on; several by commas (default 443)")
    parser.add_argument(
        "-a",
        "--sign-algorithm",
        type=str.upper,
        choices=ALGORITHMS,
        default="ED448",
        help="of the certificates (default ED448)",
    )
    parser.add_argument(
        "--disable-store-log", action="store_true", help="keep nothing over a restart, unless in a database"
    )
    parser.add_argument("-l", "--store-log", action="store_true", help="the default: keep a log")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-d", "--database", metavar="URL", help="keep everything in this PostgreSQL")
    where.add_argument(
        "--embedded",
        action="store_true",
        help="keep everything in a PostgreSQL of our own (tocsin[embedded])",
    )
    parser.add_argument("--schema", help="of the database's tables (default ntf_server)")
    parser.add_argument("--pool-size", metavar="N", help="connections of each of two pools (default 10)")
    parser.add_argument(
        "--folder",
        type=Path,
        help=f"for certificates and settings (default ${FOLDER_VARIABLE} or {DEFAULT_FOLDER})",
    )
    parser.add_argument(
        "--store", type=Path, help=f"for logs and data (default ${STORE_VARIABLE} or {DEFAULT_STORE})"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=INI,
        help="of the settings file; ini is the reference's and the default",
    )
    parser.add_argument("--dry-run", action="store_true", help="check and tell what would be made")


def run(options: argparse.Namespace) -> int:
    folder, store = options.folder or config_folder(), options.store or store_folder()
    values = _chosen_values(options, store)
    refuse_existing_router(folder, INI_FILE, TOML_FILE)
    settings_file, new_file = _NEW_FILES[options.format]
    files = ", ".join((*CREDENTIAL_FILES, settings_file))
    if options.dry_run:
        print(f"would make in {folder}: {files}")
        return 0
    algorithm = CertificateAlgorithm(options.sign_algorithm)
    fingerprint = make_router(folder, settings_file, new_file(values), values["host"], algorithm)
    try:
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{store}: {error.strerror}") from error
    settings = load_ntf_settings(folder / settings_file, {})
    print(f"Server initialized, you can modify configuration in {folder / settings_file}.")
    print(f"Made in {folder}: {files}")
    print(KEEP_AUTHORITY_KEY)
    print(f"SMP notifications server v{__version__} (Tocsin)")
    print(f"Fingerprint: {encode_base64url(fingerprint)}")
    print(f"Server address: {router_address(settings, fingerprint)}")
    return 0


def _chosen_values(options: argparse.Namespace, store: Path) -> dict[str, str]:
    """What the file says without a #."""
    try:
        host = parse_host(options.fqdn or options.ip)
    except DecodeError as error:
        raise ConfigError(f"--{'fqdn' if options.fqdn else 'ip'}: {error}") from error
    values = {
        "enable": "off" if options.disable_store_log else "on",
        "log_stats": "off",
        "host": host,
        "port": options.port,
        "websockets": "off",
        "store_path": str(store.absolute()),
    }
    chosen = {
        ("STORE_LOG", "db_connection", "--database"): options.database,
        ("STORE_LOG", "db_schema", "--schema"): options.schema,
        ("STORE_LOG", "db_pool_size", "--pool-size"): options.pool_size,
        ("TRANSPORT", "port", "--port"): options.port,
    }
    for (section, name, option), text in chosen.items():
        if text is not None:
            checked_value(section, name, text, option)
            values[name] = text
    if options.embedded:
        values["store"] = "embedded"
    return values
