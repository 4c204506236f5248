"""What `mute` and `unmute` share."""

from __future__ import annotations

import argparse

from tocsin.cli.agent_output import Output, event_fields
from tocsin.cli.agent_session import add_common_arguments, connection_named, opened_session, run_command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("connection", metavar="CONNECTION", help="its id, or the beginning of it")
    add_common_arguments(parser)


def set_notifications(options: argparse.Namespace, enabled: bool) -> int:
    return run_command(options, lambda output: _set(options, enabled, output))


async def _set(options: argparse.Namespace, enabled: bool, output: Output) -> int:
    async with opened_session(options) as session:
        name = await connection_named(session.store, options.connection)
        await session.agent.connections.set_notifications(name, enabled)
        finished = await session.at_rest()
    output.result(
        {
            "connection": name,
            "notifications": enabled,
            "finished": finished,
            "events": [event_fields(event) for event in session.events],
        }
    )
    output.say_events(session.events)
    output.say(f"Notifications of {name} are {'on' if enabled else 'off'}.")
    if not finished:
        output.say("A router could not be reached: the rest goes on with the next command.")
    return 0
