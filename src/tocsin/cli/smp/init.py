"""`tocsin smp init`: creates the certificates and settings of a new SMP router."""

from __future__ import annotations

import argparse
import secrets
from typing import Final

from tocsin.cli.routers import init
from tocsin.cli.smp.router_kind import SMP
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.crypto.credentials import CertificateAlgorithm
from tocsin.protocol.addresses import parse_host
from tocsin.smp_router.settings.files import SMP_FILE, router_address

NAME = "init"
SUMMARY = init.SUMMARY
DESCRIPTION = init.DESCRIPTION
EXAMPLE = "tocsin smp init --host smp.example.com --random-password"

_RANDOM_PASSWORD_BYTES: Final = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host",
        required=True,
        metavar="HOST",
        help="the router's host name or IP address; separate several with commas",
    )
    init.add_arguments(parser, SMP, port=5223, algorithm=CertificateAlgorithm.ED25519)
    password = parser.add_mutually_exclusive_group()
    password.add_argument(
        "--password",
        help="require this password to create queues; other users of this machine may see it in the process list",
    )
    password.add_argument(
        "--random-password", action="store_true", help="require a random password to create queues"
    )


def run(options: argparse.Namespace) -> int:
    created = init.create_router(options, SMP, _chosen_values(options))
    if created is None:
        return ExitCode.OK
    created.print_summary()
    settings, fingerprint = created.settings, created.fingerprint
    if settings.create_password is not None:
        address = router_address(settings, fingerprint, with_password=True)
        print(f"Address for users who may create queues: {address}")
    print(f"Address: {router_address(settings, fingerprint)}")
    return ExitCode.OK


def _chosen_values(options: argparse.Namespace) -> dict[str, str]:
    hosts = SMP_FILE.checked_value("TRANSPORT", "host", options.host, "--host")
    values = {"host": ",".join(parse_host(host) for host in hosts)}
    password = secrets.token_urlsafe(_RANDOM_PASSWORD_BYTES) if options.random_password else options.password
    if password is not None:
        values["create_password"] = SMP_FILE.checked_value("AUTH", "create_password", password, "--password")
    return values
