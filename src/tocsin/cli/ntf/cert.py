"""`tocsin ntf cert`: a new certificate for TLS under the same authority."""

from __future__ import annotations

import argparse

from tocsin.cli.ntf.files import add_config_argument, settings_of
from tocsin.errors import ConfigError
from tocsin.operate.router_files import ALGORITHMS, renew_leaf

NAME = "cert"
SUMMARY = "replace the certificate for TLS, keeping the router's identity"
DESCRIPTION = (
    "Makes a new key and certificate for TLS under the router's authority, whose key (ca.key) must be in the folder "
    "for it. The fingerprint, and so the router's address, stays the same. Restart the router to use it."
)
EXAMPLE = "tocsin ntf cert --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_argument(parser)
    parser.add_argument("--cn", metavar="NAME", help="name in the certificate (default: the settings' host)")
    parser.add_argument(
        "-a",
        "--sign-algorithm",
        type=str.upper,
        choices=ALGORITHMS,
        help="of the new key (default: the authority's)",
    )
    parser.add_argument("--dry-run", action="store_true", help="check that it can be made, and write nothing")


def run(options: argparse.Namespace) -> int:
    settings = settings_of(options)
    host = options.cn or next(iter(settings.public_hosts), None)
    if host is None:
        raise ConfigError("[TRANSPORT] host is not set: say --cn")
    renew_leaf(settings.credentials, host, options.sign_algorithm, dry_run=options.dry_run)
    return 0
