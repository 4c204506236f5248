"""`tocsin ntf config`: checks the settings of an NTF router, or shows them."""

from __future__ import annotations

import argparse

from tocsin.cli.ntf.router_kind import NTF
from tocsin.cli.routers import config
from tocsin.cli.routers.config import ConfigCheck
from tocsin.crypto.signed_tokens import unpadded_base64url
from tocsin.ntf_router.settings.settings import NtfSettings

NAME = "config"
SUMMARY = config.SUMMARY
DESCRIPTION = (
    "`check` reads the settings file, the environment (TOCSIN_NTF_…, APNS_KEY_FILE, APNS_KEY_ID), the certificates "
    "and the keys for push services, lists every problem, and exits with 1 if there is one. `show` lists every setting "
    "with its value and source, but no passwords. `show --format toml` converts an INI file to TOML."
)
EXAMPLE = "tocsin ntf config check"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    config.add_arguments(parser, NTF)


def run(options: argparse.Namespace) -> int:
    return config.run(options, NTF, _check_providers)


def _check_providers(settings: NtfSettings, check: ConfigCheck) -> list[str]:
    # Other commands start faster without it.
    from tocsin.ntf_router.delivery.providers import served_names, served_settings, service_account, vapid_key

    found = check.step(lambda: served_settings(settings))
    key = check.step(lambda: vapid_key(settings.webpush))
    account = check.step(lambda: service_account(settings.fcm))
    if found is None:
        return []
    served, warning = found
    lines = [f"Note: {warning}"] if warning is not None else []
    lines.append(f"Device tokens of: {', '.join(served_names(served)) or 'no provider'}")
    if served.webpush.enabled:
        shown = "created at the first start" if key is None else unpadded_base64url(key.public).decode()
        lines.append(f"Key for Web Push: {shown}")
    if account is not None:
        lines.append(f"Firebase project: {account.project}")
    return lines
