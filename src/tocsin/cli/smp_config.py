"""`tocsin smp config`: are the settings right, and what are they?"""

from __future__ import annotations

import argparse

from tocsin.cli.router_files import show_settings
from tocsin.cli.smp_files import add_config_argument, router_address, settings_of
from tocsin.config.smp_ini import describe
from tocsin.config.smp_settings import SmpSettings
from tocsin.transport.credential_files import read_credentials

NAME = "config"
SUMMARY = "check or show the router's settings"
DESCRIPTION = (
    "`check` reads the settings file, the environment (TOCSIN_SMP_…) and the certificates, and says what is wrong. "
    "`show` lists every setting with its value and where it comes from; passwords are not shown."
)
EXAMPLE = "tocsin smp config check"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("check", "show"), help="what to do")
    add_config_argument(parser)


def run(options: argparse.Namespace) -> int:
    settings = settings_of(options)
    if options.action == "check":
        _check(settings)
    else:
        show_settings(describe(settings))
    return 0


def _check(settings: SmpSettings) -> None:
    credentials = read_credentials(settings.credentials)
    print("Settings and certificates are in order.")
    print(f"Address: {router_address(settings, credentials.fingerprint, with_password=False)}")
