"""`tocsin agent register`: registers the device token at an NTF router."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from tocsin.agent.store.records import NotificationMode
from tocsin.cli.agent.folder import agent_folder, read_agent_file, server_addresses, write_agent_file
from tocsin.cli.agent.output import Output, address_text, event_fields, token_status
from tocsin.cli.agent.session import add_common_arguments, opened_session, run_command
from tocsin.errors import ConfigError, DecodeError
from tocsin.protocol.addresses import Scheme
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import TokenState
from tocsin.protocol.ntf.web_push_tokens import WebPushForm, endpoint_location

NAME = "register"
SUMMARY = "register a device token at an NTF router"
DESCRIPTION = (
    "Takes the next step of the registration: registers the device token, replaces a former one, repeats a "
    "verification that got no answer, or checks it. Run it again whenever the device token or the mode changes. "
    "After a new registration a push arrives, which `verify` needs."
)
EXAMPLE = "tocsin agent register 'apns_test abcd1234' --mode instant --ntf-server ntf://<fingerprint>@ntf.example.com"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument(
        "device_token",
        nargs="*",
        default=[],
        metavar="DEVICE_TOKEN",
        help="provider and token, for example: apns_test abcd1234, fcm and a registration token, or webpush with "
        "address and keys of a push library that opens its pushes itself",
    )
    given.add_argument(
        "--web-push",
        metavar="ENDPOINT",
        help="the https address from a Web Push distributor, such as one of UnifiedPush",
    )
    parser.add_argument(
        "--compact",
        action="store_true",
        help="with --web-push: register in Tocsin's form, which has room for longer addresses and which no other "
        "router knows (default: the form of the reference, if the address fits it)",
    )
    parser.add_argument(
        "--mode",
        choices=[mode.lower() for mode in NotificationMode],
        default=NotificationMode.INSTANT.lower(),
        help="a push for every message, or an occasional one (default: instant)",
    )
    parser.add_argument(
        "--ntf-server",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="a router for new tokens, which replaces those in agent.ini; repeat it to choose from several at random",
    )
    add_common_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return run_command(options, lambda output: _register(options, output))


async def _register(options: argparse.Namespace, output: Output) -> int:
    device_token = None
    if options.web_push is None:
        device_token = _device_token(options.device_token)
    else:
        _require_endpoint(options.web_push)
    form = WebPushForm.COMPACT if options.compact else None
    if options.ntf_server:
        folder = agent_folder(options)
        chosen = server_addresses(options.ntf_server, Scheme.NTF, "--ntf-server")
        write_agent_file(folder, replace(read_agent_file(folder), ntf_servers=chosen))
    async with opened_session(options) as session:
        mode = NotificationMode(options.mode.upper())
        if device_token is None:
            status = await session.agent.tokens.register_endpoint(options.web_push, mode, form)
        else:
            status = await session.agent.tokens.register(device_token, mode)
        finished = await session.at_rest()
        token = await session.agent.tokens.current()
    router = address_text(Scheme.NTF, token.router)
    output.result(
        {
            "status": token_status(status),
            "mode": token.mode.lower(),
            "ntf_server": router,
            "finished": finished,
            "events": [event_fields(event) for event in session.events],
        }
    )
    output.say(f"The token is {token_status(status)} at {router}, mode {token.mode.lower()}.")
    output.say_events(session.events)
    match status.state:
        case TokenState.ACTIVE:
            output.say(
                "All connections have the subscriptions that the mode needs." if finished else _GOES_ON
            )
        case TokenState.INVALID | TokenState.EXPIRED:
            output.say("Next: run this again with the device token that the provider issues now.")
        case _:
            output.say("Next: run `tocsin agent verify` with the push that arrives.")
    return 0


def _device_token(words: Sequence[str]) -> DeviceToken:
    try:
        token = DeviceToken.parse(" ".join(words))
    except DecodeError as error:
        raise ConfigError(f"DEVICE_TOKEN: {error}, for example: apns_test abcd1234") from error
    if token.provider is PushProvider.WEBPUSH and not token.is_reference_web_push:
        raise ConfigError(
            "DEVICE_TOKEN: give a Web Push endpoint with --web-push, so that its pushes can be opened"
        )
    return token


def _require_endpoint(url: str) -> None:
    """Check the endpoint before anything is written."""
    try:
        endpoint_location(url)
    except DecodeError as error:
        raise ConfigError(f"--web-push: {error}") from error


_GOES_ON = "Not all routers could be reached. The next command continues, or `tocsin agent listen`."
