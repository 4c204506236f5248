"""`tocsin agent mute`: switches a connection's notifications off, or to mentions only."""

from __future__ import annotations

import argparse
from typing import Final

from tocsin.cli.agent.output import Output, event_fields
from tocsin.cli.agent.session import add_common_arguments, connection_named, opened_session, run_command
from tocsin.protocol.direct.priorities import MinimumPriority

NAME = "mute"
SUMMARY = "switch a connection's notifications off"
DESCRIPTION = (
    "Switches a connection's notifications off: its SMP router deletes the notifier, or keeps it and notifies nobody. "
    "`listen` receives the messages as before. With --mentions-only, mentions and replies still notify, if the agent "
    "and the SMP router use direct notifications; otherwise all messages do."
)
EXAMPLE = "tocsin agent mute Zm9vYmFyYmF6cXV4"

_STATES: Final = {
    MinimumPriority.OFF: "off",
    MinimumPriority.ALL: "on",
    MinimumPriority.PRIORITY: "on for mentions and replies, if its SMP router supports priorities",
    MinimumPriority.HIGH: "on for the most important messages, if its SMP router supports priorities",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mentions-only", action="store_true", help="still notify of mentions and replies")
    add_connection_arguments(parser)


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("connection", metavar="CONNECTION", help="its id, or the beginning of it")
    add_common_arguments(parser)


def run(options: argparse.Namespace) -> int:
    wanted = MinimumPriority.PRIORITY if options.mentions_only else MinimumPriority.OFF
    return run_command(options, lambda output: set_notifications(options, wanted, output))


async def set_notifications(options: argparse.Namespace, wanted: MinimumPriority, output: Output) -> int:
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
    output.say(f"Notifications of {name} are {_STATES[wanted]}.")
    if not finished:
        output.say("A router could not be reached. The next command continues, or `tocsin agent listen`.")
    return 0
