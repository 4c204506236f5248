"""`tocsin ntf config`: are the settings right, and what are they?"""

from __future__ import annotations

import argparse

from tocsin.cli.ntf_files import add_config_argument, credentials_of, router_address, settings_of
from tocsin.cli.router_files import show_settings
from tocsin.config.ntf_ini import describe
from tocsin.config.ntf_settings import NtfSettings

NAME = "config"
SUMMARY = "check or show the router's settings"
DESCRIPTION = (
    "`check` reads the settings file, the environment (TOCSIN_NTF_…, APNS_KEY_FILE, APNS_KEY_ID), the certificates "
    "and the key for Apple's service, and says what is wrong. `show` lists every setting with its value and where it "
    "comes from; passwords are not shown."
)
EXAMPLE = "tocsin ntf config check"


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


def _check(settings: NtfSettings) -> None:
    from tocsin.cli.ntf_providers import served_settings  # other commands start faster without it

    credentials = credentials_of(settings)
    served, warning = served_settings(settings)
    print("Settings and certificates are in order.")
    if warning is not None:
        print(f"Note: {warning}")
    print(f"Device tokens of: {', '.join(served.apns.endpoints) or 'no provider'}")
    print(f"Address: {router_address(settings, credentials.fingerprint)}")
