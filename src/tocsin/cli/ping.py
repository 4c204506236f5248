"""`tocsin ping`: connects to a router, verifies its identity, and measures the round trip of PING."""

from __future__ import annotations

import argparse
import asyncio
import time

from rich.console import Console

from tocsin.agent.token.router_inquiries import ask_vapid_key
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.cli.terminal.option_types import seconds
from tocsin.clients import ClientSettings, NtfClient, SmpClient
from tocsin.crypto.signed_tokens import unpadded_base64url
from tocsin.errors import DecodeError
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.transport.client_sessions import INTERACTIVE_CONNECT_SECONDS, DialSettings

NAME = "ping"
SUMMARY = "connect to a router and PING it"
DESCRIPTION = (
    "Connects to an SMP or NTF router, verifies its certificates against the fingerprint in the address, "
    "negotiates a protocol version and sends PING."
)
EXAMPLE = "tocsin ping smp://<fingerprint>@smp.example.com"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", help="the router's address: smp://… or ntf://…")
    parser.add_argument(
        "--count", type=int, default=3, metavar="N", help="number of PINGs to send (default: 3)"
    )
    parser.add_argument(
        "--web-push-key",
        action="store_true",
        help="ask an NTF router for its public key for Web Push (VAPID), which some distributors need, and verify that "
        "its identity has signed it",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=INTERACTIVE_CONNECT_SECONDS,
        metavar="SECONDS",
        help="time limit of each step (default: 15)",
    )


def run(options: argparse.Namespace) -> int:
    address = RouterAddress.parse(options.address)
    if address.scheme is Scheme.XFTP:
        raise DecodeError("xftp routers cannot be pinged: give an smp:// or ntf:// address")
    if options.web_push_key and address.scheme is not Scheme.NTF:
        raise DecodeError("--web-push-key: only NTF routers have one: give an ntf:// address")
    settings = ClientSettings(
        dial=DialSettings(connect_timeout=options.timeout), response_timeout=options.timeout
    )
    asyncio.run(_ping(address, options.count, settings, web_push_key=options.web_push_key))
    return ExitCode.OK


async def _ping(address: RouterAddress, pings: int, settings: ClientSettings, *, web_push_key: bool) -> None:
    console = Console()
    kind = SmpClient if address.scheme is Scheme.SMP else NtfClient
    began = time.perf_counter()
    async with kind.connect(address, settings) as client:
        session = client.session
        blocks = "blocks encrypted" if session.encrypted else "blocks plain inside TLS"
        console.print(
            f"{address.name}: identity verified, {session.dialect.name} v{session.version}, {blocks}, "
            f"session after {_milliseconds(began)}"
        )
        for number in range(1, pings + 1):
            began = time.perf_counter()
            await client.ping()
            console.print(f"PONG {number} after {_milliseconds(began)}")
    if web_push_key:
        key = unpadded_base64url(await ask_vapid_key(address, settings)).decode()
        console.print(f"key for Web Push, signed by this identity: {key}", soft_wrap=True)


def _milliseconds(began: float) -> str:
    return f"{(time.perf_counter() - began) * 1000:.1f} ms"
