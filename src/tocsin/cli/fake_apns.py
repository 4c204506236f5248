"""`tocsin fake-apns`: runs a push provider on this machine that misbehaves on command."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.cli.terminal.option_types import port

NAME = "fake-apns"
SUMMARY = "run a fake push provider of Apple that misbehaves on command"
DESCRIPTION = (
    "Speaks HTTP/2 over TLS like Apple's push service: checks, accepts and prints every request. It writes its "
    "certificate to the folder; routers must be set to trust that file. Lines on standard input make it misbehave: "
    "'answer 503 retry-after=5 times=3', 'hold', 'release', 'goaway', 'refuse', 'listen', "
    "'answer 410 Unregistered token=abcd'; 'help' lists all of them."
)
EXAMPLE = "tocsin fake-apns --port 6010 --folder apns"
TOPIC = "chat.simplex.app"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser, 6010, NAME, "folder of its certificate and key, which are created if missing")
    parser.add_argument(
        "--topic", default=TOPIC, help=f"the app to accept pushes for, or 'any' (default: {TOPIC})"
    )
    parser.add_argument(
        "--public-key",
        type=Path,
        metavar="FILE",
        help="PEM file of the key that must have signed provider tokens",
    )
    add_save(parser)


def add_place(parser: argparse.ArgumentParser, usual_port: int, folder: str, folder_help: str) -> None:
    """Add the options of every fake service that say where it is."""
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="HOST", help="address to listen on (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--port",
        type=port,
        default=usual_port,
        metavar="PORT",
        help=f"port to listen on; 0 chooses a free one (default: {usual_port})",
    )
    parser.add_argument(
        "--folder", type=Path, default=Path(folder), help=f"{folder_help} (default: {folder})"
    )


def add_save(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--save",
        type=Path,
        metavar="DIR",
        help="write each device's last push to DIR/DEVICE_TOKEN.json, for `tocsin agent verify` and `wake`",
    )


def run(options: argparse.Namespace) -> int:
    from tocsin.lab.fake_apns import serve  # other commands start faster without it

    topic = None if options.topic == "any" else options.topic
    asyncio.run(serve(options.folder, options.host, options.port, topic, options.public_key, options.save))
    return ExitCode.OK
