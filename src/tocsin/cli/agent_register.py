"""`tocsin agent register`: the device token goes to an NTF router."""

from __future__ import annotations

import argparse
from dataclasses import replace

from tocsin.cli.agent_files import agent_folder, read_agent_file, server_addresses, write_agent_file
from tocsin.cli.agent_output import Output, address_text, event_fields, token_status
from tocsin.cli.agent_session import add_common_arguments, opened_session, run_command
from tocsin.errors import ConfigError, DecodeError
from tocsin.protocol.addresses import Scheme
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import TokenState
from tocsin.stores.agent_records import NotificationMode

NAME = "register"
SUMMARY = "register a device token at an NTF router"
DESCRIPTION = (
    "Brings the registration of the device token to its next step: registers it, replaces a former one, repeats a "
    "verification that got no answer, or checks it. Call it again whenever the device token or the mode changes. "
    "A new registration is answered by a push, which `verify` needs."
)
EXAMPLE = "tocsin agent register 'apns_test abcd1234' --mode instant --ntf-server ntf://<fingerprint>@ntf.example.com"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "device_token",
        nargs="+",
        metavar="DEVICE_TOKEN",
        help="provider and token in hex, for example: apns_test abcd1234",
    )
    parser.add_argument(
        "--mode",
        choices=[mode.lower() for mode in NotificationMode],
        default=NotificationMode.INSTANT.lower(),
        help="a push for every message, or one now and then (default instant)",
    )
    parser.add_argument(
        "--ntf-server",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="for new tokens, instead of those in agent.ini, and written there; several are chosen from at random",
    )
    add_common_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return run_command(options, lambda output: _register(options, output))


async def _register(options: argparse.Namespace, output: Output) -> int:
    try:
        device_token = DeviceToken.parse(" ".join(options.device_token))
    except DecodeError as error:
        raise ConfigError(f"DEVICE_TOKEN: {error}, for example: apns_test abcd1234") from error
    if options.ntf_server:
        folder = agent_folder(options)
        chosen = server_addresses(options.ntf_server, Scheme.NTF, "--ntf-server")
        write_agent_file(folder, replace(read_agent_file(folder), ntf_servers=chosen))
    async with opened_session(options) as session:
        status = await session.agent.tokens.register(device_token, NotificationMode(options.mode.upper()))
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
            output.say("Subscriptions are as the mode asks for." if finished else _GOES_ON)
        case TokenState.INVALID | TokenState.EXPIRED:
            output.say("Next: run this again with the device token that the provider gives out now.")
        case _:
            output.say("Next: `tocsin agent verify` with the push that comes.")
    return 0


_GOES_ON = "Not all routers could be reached: the rest goes on with the next command, or while `listen` runs."
