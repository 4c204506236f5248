"""`tocsin smp config`: are the settings right, and what are they?"""

from __future__ import annotations

import argparse

from tocsin.cli.routers.config_files import Check, show_settings
from tocsin.cli.smp.files import add_config_argument, config_file, settings_of
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.smp_router.settings.files import describe, router_address
from tocsin.transport.credential_files import read_credentials

NAME = "config"
SUMMARY = "check or show the router's settings"
DESCRIPTION = (
    "`check` reads the settings file, the environment (TOCSIN_SMP_…) and the certificates, and says everything that is "
    "wrong, with an exit code of 1. `show` lists every setting with its value and where it comes from; passwords are "
    "not shown. `show --format toml` is also the way from an INI file to a TOML file."
)
EXAMPLE = "tocsin smp config check"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("check", "show"), help="what to do")
    add_config_argument(parser)
    parser.add_argument(
        "--format", choices=("table", "toml", "json"), default="table", help="of show (default table)"
    )


def run(options: argparse.Namespace) -> int:
    if options.action == "show":
        show_settings(describe(settings_of(options)), options.format, config_file(options))
        return ExitCode.OK
    return _check(options)


def _check(options: argparse.Namespace) -> ExitCode:
    check = Check()
    settings = check.step(lambda: settings_of(options))
    if settings is not None:
        credentials = check.step(lambda: read_credentials(settings.credentials))
        fingerprint = credentials.fingerprint if credentials else bytes(32)
        address = check.step(lambda: router_address(settings, fingerprint, with_password=False))
    if check.tell():
        return ExitCode.WRONG
    print("Settings and certificates are in order.")
    print(f"Address: {address}")
    return ExitCode.OK
