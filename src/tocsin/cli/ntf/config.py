"""`tocsin ntf config`: are the settings right, and what are they?"""

from __future__ import annotations

import argparse

from tocsin.cli.ntf.files import add_config_argument, config_file, settings_of
from tocsin.cli.routers.config_files import Check, show_settings
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.crypto.es256 import unpadded_base64url
from tocsin.ntf_router.settings.files import describe
from tocsin.ntf_router.settings.locations import credentials_of, router_address

NAME = "config"
SUMMARY = "check or show the router's settings"
DESCRIPTION = (
    "`check` reads the settings file, the environment (TOCSIN_NTF_…, APNS_KEY_FILE, APNS_KEY_ID), the certificates "
    "and the keys for push services, and says everything that is wrong, with an exit code of 1. `show` lists every "
    "setting with its value and where it comes from; passwords are not shown. `show --format toml` is also the way "
    "from an INI file to a TOML file."
)
EXAMPLE = "tocsin ntf config check"


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
    # Other commands start faster without it.
    from tocsin.ntf_router.delivery.providers import served_names, served_settings, vapid_key

    check = Check()
    settings = check.step(lambda: settings_of(options))
    if settings is not None:
        credentials = check.step(lambda: credentials_of(settings))
        served = check.step(lambda: served_settings(settings))
        key = check.step(lambda: vapid_key(settings.webpush))
        fingerprint = credentials.fingerprint if credentials else bytes(32)
        address = check.step(lambda: router_address(settings, fingerprint))
    if check.tell() or served is None:
        return ExitCode.WRONG
    print("Settings and certificates are in order.")
    if served[1] is not None:
        print(f"Note: {served[1]}")
    print(f"Device tokens of: {', '.join(served_names(served[0])) or 'no provider'}")
    if served[0].webpush.enabled:
        made = "made at the first start" if key is None else unpadded_base64url(key.public).decode()
        print(f"Key for Web Push: {made}")
    print(f"Address: {address}")
    return ExitCode.OK
