"""`tocsin ntf vapid`: prints the public key by which Web Push services know this router."""

from __future__ import annotations

import argparse

from tocsin.cli.ntf.router_kind import NTF
from tocsin.cli.routers.router_kind import add_router_arguments
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.crypto.signed_tokens import unpadded_base64url
from tocsin.errors import ConfigError

NAME = "vapid"
SUMMARY = "print the public key for Web Push services"
DESCRIPTION = (
    "Prints the router's public VAPID key (RFC 8292) in base64url. Apps pass it to distributors that bind an endpoint "
    "to the sender's key (applicationServerKey). Creates the key file if it does not exist, as the first start does."
)
EXAMPLE = "tocsin ntf vapid"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_router_arguments(parser, NTF)


def run(options: argparse.Namespace) -> int:
    from tocsin.ntf_router.delivery.providers import (
        required_vapid_key,  # other commands start faster without it
    )

    settings = NTF.load_settings(options)
    if not settings.webpush.enabled:
        raise ConfigError("[TOCSIN] webpush is off, so the router has no such key: turn it on first")
    print(unpadded_base64url(required_vapid_key(settings.webpush).public).decode())
    return ExitCode.OK
