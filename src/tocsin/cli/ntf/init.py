"""`tocsin ntf init`: creates the certificates and settings of a new NTF router."""

from __future__ import annotations

import argparse
from typing import Final

from tocsin import __version__
from tocsin.cli.ntf.router_kind import NTF
from tocsin.cli.routers import init
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.crypto.credentials import CertificateAlgorithm
from tocsin.errors import ConfigError, DecodeError
from tocsin.ntf_router.settings.files import NTF_FILE, router_address
from tocsin.protocol.addresses import parse_host
from tocsin.wire.base64url import encode_base64url

NAME = "init"
SUMMARY = init.SUMMARY
DESCRIPTION = init.DESCRIPTION
EXAMPLE = "tocsin ntf init --host ntf.example.com"

_LOOPBACK: Final = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", "--fqdn", "-n", dest="host", metavar="HOST", help="the router's host name")
    parser.add_argument(
        "--ip",
        default=_LOOPBACK,
        metavar="ADDRESS",
        help=f"the router's IP address if it has no host name (default: {_LOOPBACK})",
    )
    init.add_arguments(parser, NTF, port=443, algorithm=CertificateAlgorithm.ED448)
    parser.add_argument(
        "--disable-store-log",
        action="store_true",
        help="keep nothing across restarts unless the store is a database",
    )
    parser.add_argument("--store-log", "-l", action="store_true", help="keep a store log (default: yes)")
    store = parser.add_mutually_exclusive_group()
    store.add_argument("--database", "-d", metavar="URL", help="keep the store in this PostgreSQL database")
    store.add_argument(
        "--embedded",
        action="store_true",
        help="keep the store in a PostgreSQL that the router runs itself (needs tocsin[embedded])",
    )
    parser.add_argument(
        "--schema", metavar="NAME", help="schema of the database tables (default: ntf_server)"
    )
    parser.add_argument("--pool-size", metavar="N", help="connections in each of two pools (default: 10)")


def run(options: argparse.Namespace) -> int:
    created = init.create_router(options, NTF, _chosen_values(options))
    if created is None:
        return ExitCode.OK
    # The reference's words, which scripts may look for.
    print(f"Server initialized, you can modify configuration in {created.file}.")
    created.print_summary()
    print(f"SMP notifications server v{__version__} (Tocsin)")
    print(f"Fingerprint: {encode_base64url(created.fingerprint)}")
    print(f"Server address: {router_address(created.settings, created.fingerprint)}")
    return ExitCode.OK


def _chosen_values(options: argparse.Namespace) -> dict[str, str]:
    """The keys that the file sets."""
    try:
        host = parse_host(options.host or options.ip)
    except DecodeError as error:
        raise ConfigError(f"--{'host' if options.host else 'ip'}: {error}") from error
    values = {
        "enable": "off" if options.disable_store_log else "on",
        "log_stats": "off",
        "host": host,
        "websockets": "off",
        "separate_services": "on",
    }
    for name, option in (
        ("db_connection", "database"),
        ("db_schema", "schema"),
        ("db_pool_size", "pool_size"),
    ):
        if (text := getattr(options, option)) is not None:
            NTF_FILE.checked_value("STORE_LOG", name, text, f"--{option.replace('_', '-')}")
            values[name] = text
    if options.embedded:
        values["store"] = "embedded"
    return values
