"""What `mute` and `unmute` share."""

from __future__ import annotations

import argparse
from typing import Final

from tocsin.cli.agent.output import Output, event_fields
from tocsin.cli.agent.session import add_common_arguments, connection_named, opened_session, run_command
from tocsin.protocol.direct.priorities import MinimumPriority


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("connection", metavar="CONNECTION", help="its id, or the beginning of it")
    add_common_arguments(parser)


def set_notifications(options: argparse.Namespace, wanted: MinimumPriority) -> int:
    return run_command(options, lambda output: _set(options, wanted, output))


async def _set(options: argparse.Namespace, wanted: MinimumPriority, output: Output) -> int:
    async with opened_session(options) as session:
        name = await connection_named(session.store, options.connection)
        await session.agent.connections.set_notifications(name, wanted)
        finished = await session.at_rest()
    output.result(
        {
            "connection": name,
            "notifications": wanted is not MinimumPriority.OFF,
            "mentions_only": wanted > MinimumPriority.ALL,
            "finished": finished,
            "events": [event_fields(event) for event in session.events],
        }
    )
    output.say_events(session.events)
    output.say(f"Notifications of {name} are {_WORDS[wanted]}.")
    if not finished:
        output.say("A router could not be reached: the rest goes on with the next command.")
    return 0


_WORDS: Final = {
    MinimumPriority.OFF: "off",
    MinimumPriority.ALL: "on",
    MinimumPriority.PRIORITY: "on for mentions and replies, where its SMP router knows priorities",
    MinimumPriority.HIGH: "on for the most important, where its SMP router knows priorities",
}
