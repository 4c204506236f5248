"""`tocsin fake-apns`: a push provider on this machine that misbehaves on command."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

NAME = "fake-apns"
SUMMARY = "run a push provider for tests that misbehaves on command"
DESCRIPTION = (
    "Speaks HTTP/2 over TLS like Apple's push service, checks every request, accepts it and shows that it came. "
    "Its certificate, which it writes to the folder, is also the file that a router must trust. Lines on standard "
    "input make it misbehave: 'answer 503 retry-after=5 times=3', 'hold', 'release', 'goaway', 'refuse', 'listen', "
    "'answer 410 Unregistered token=abcd', 'help' for all of them."
)
EXAMPLE = "tocsin fake-apns --port 6010 --folder apns"
TOPIC = "chat.simplex.app"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=6010, help="0 chooses one (default 6010)")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("fake-apns"),
        help="where its certificate and key are, or are written to (default fake-apns)",
    )
    parser.add_argument(
        "--topic", default=TOPIC, help=f"the app that pushes are for; 'any' takes all (default {TOPIC})"
    )
    parser.add_argument(
        "--public-key", type=Path, help="PEM file of the key that must have signed the provider tokens"
    )
    parser.add_argument(
        "--save",
        type=Path,
        metavar="DIR",
        help="write what a device got last to DIR/DEVICE_TOKEN.json, for `tocsin agent verify` and `wake`",
    )


def run(options: argparse.Namespace) -> int:
    from tocsin.lab.fake_apns import serve  # other commands start faster without it

    topic = None if options.topic == "any" else options.topic
    asyncio.run(serve(options.folder, options.host, options.port, topic, options.public_key, options.save))
    return 0
