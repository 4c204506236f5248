"""`tocsin fake-fcm`: runs Google's endpoints of Firebase on this machine, which misbehave on command."""

from __future__ import annotations

import argparse
import asyncio

from tocsin.cli.fake_apns import add_place, add_save
from tocsin.cli.terminal.exit_codes import ExitCode

NAME = "fake-fcm"
SUMMARY = "run a fake Firebase Cloud Messaging that misbehaves on command"
DESCRIPTION = (
    "Speaks HTTP/2 over TLS like both Google endpoints, for access tokens and for messages: checks, accepts and prints "
    "every message. It writes its certificate and the key file of a service account to the folder, for fcm_ca_file and "
    "fcm_key_file of the router. Lines on standard input make it misbehave: 'answer 404 UNREGISTERED', "
    "'tokens answer 400 invalid_grant', 'revoke'; 'help' lists all of them."
)
EXAMPLE = "tocsin fake-fcm --port 6020 --folder fcm"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser, 6020, NAME, "folder of its certificate and of the service account's key file")
    add_save(parser)


def run(options: argparse.Namespace) -> int:
    from tocsin.lab.fake_apns import serve_fcm  # other commands start faster without it

    asyncio.run(serve_fcm(options.folder, options.host, options.port, options.save))
    return ExitCode.OK
