"""`tocsin smp|ntf cert`: replaces the TLS certificate under the same authority."""

from __future__ import annotations

import argparse
from typing import Final

from tocsin.cli.routers.router_kind import RouterKind, S, add_router_arguments
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.errors import ConfigError
from tocsin.operate.router_files import ALGORITHMS, renew_leaf
from tocsin.transport.credential_files import LEAF_CERTIFICATE, LEAF_KEY
from tocsin.wire.base64url import encode_base64url

SUMMARY: Final = "replace the TLS certificate and keep the router's identity"
DESCRIPTION: Final = (
    "Creates a new TLS key and certificate, signed by the router's authority. The authority's key (ca.key) must be in "
    "the router's folder while this runs. The fingerprint and the address of the router stay the same. Restart the "
    "router to use the new certificate."
)


def add_arguments(parser: argparse.ArgumentParser, kind: RouterKind[S]) -> None:
    add_router_arguments(parser, kind)
    parser.add_argument(
        "--host",
        "--cn",
        metavar="HOST",
        help="host name in the certificate (default: the first host of the settings)",
    )
    add_algorithm_argument(parser, "algorithm of the new key (default: the authority's)")
    parser.add_argument(
        "--dry-run", action="store_true", help="check that the certificate can be created; write nothing"
    )


def add_algorithm_argument(parser: argparse.ArgumentParser, text: str, default: str | None = None) -> None:
    parser.add_argument(
        "--algorithm",
        "--sign-algorithm",
        "-a",
        type=str.upper,
        choices=ALGORITHMS,
        default=default,
        help=text,
    )


def run(options: argparse.Namespace, kind: RouterKind[S]) -> int:
    settings = kind.load_settings(options)
    host = options.host or next(iter(settings.public_hosts), None)
    if host is None:
        raise ConfigError("[TRANSPORT] host is not set: set it, or name the host with --host")
    leaf, algorithm = renew_leaf(settings.credentials, host, options.algorithm, dry_run=options.dry_run)
    done = "Would replace" if options.dry_run else "Replaced"
    print(f"{done} {LEAF_CERTIFICATE} and {LEAF_KEY} in {settings.credentials}: {host}, {algorithm.value}")
    print(f"Fingerprint, unchanged: {encode_base64url(leaf.fingerprint)}")
    return ExitCode.OK
