"""`tocsin agent unregister`: deletes the token."""

from __future__ import annotations

import argparse

from tocsin.cli.agent.output import Output, event_fields
from tocsin.cli.agent.session import add_common_arguments, opened_session, run_command

NAME = "unregister"
SUMMARY = "delete the token, here and at its NTF router"
DESCRIPTION = (
    "Deletes the token, and with it all notifications. Connections stay. If the NTF router cannot be reached, the "
    "agent deletes the token there later."
)
EXAMPLE = "tocsin agent unregister"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return run_command(options, lambda output: _unregister(options, output))


async def _unregister(options: argparse.Namespace, output: Output) -> int:
    async with opened_session(options) as session:
        await session.agent.tokens.delete()
        finished = await session.at_rest()
    output.result({"finished": finished, "events": [event_fields(event) for event in session.events]})
    if finished:
        output.say("The token is deleted.")
    else:
        output.say(
            "The token is deleted here, but its router could not be reached. Next: run `tocsin agent listen`."
        )
    return 0
