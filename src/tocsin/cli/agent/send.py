"""`tocsin agent send`: sends a message."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Final

from tocsin.cli.agent.output import Output, event_fields
from tocsin.cli.agent.session import add_common_arguments, connection_named, opened_session, run_command
from tocsin.errors import ConfigError
from tocsin.protocol.agent.queue_envelopes import PADDED_BYTES
from tocsin.protocol.smp.sender_commands import MENTION_PRIORITY

NAME = "send"
SUMMARY = "send a message"
DESCRIPTION = (
    "Sends a message of up to about 15,900 bytes, encrypted for the other side's queue. When the command ends, the SMP "
    "router has accepted it."
)
EXAMPLE = "tocsin agent send Zm9vYmFyYmF6cXV4 'See you at noon'"
MAX_BYTES = PADDED_BYTES - 3
"""Without length and tag."""
ORDINARY: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("connection", metavar="CONNECTION", help="its id, or the beginning of it")
    parser.add_argument("text", metavar="TEXT", help="the message, or - for standard input")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--silent", action="store_true", help="do not notify the other side")
    kind.add_argument(
        "--mention",
        action="store_true",
        help="notify the other side even if it wants notifications of mentions and replies only",
    )
    add_common_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return run_command(options, lambda output: _send(options, output))


async def _send(options: argparse.Namespace, output: Output) -> int:
    body = options.text.encode("utf-8", "surrogateescape")
    if options.text == "-":
        body = await asyncio.to_thread(sys.stdin.buffer.read, MAX_BYTES + 1)
    if len(body) > MAX_BYTES:
        raise ConfigError(f"the message has more than {MAX_BYTES} bytes: send it in parts")
    async with opened_session(options) as session:
        name = await connection_named(session.store, options.connection)
        priority = MENTION_PRIORITY if options.mention else ORDINARY
        await session.agent.connections.send(name, body, notify=not options.silent, priority=priority)
    output.result(
        {
            "connection": name,
            "bytes": len(body),
            "notify": not options.silent,
            "mention": options.mention,
            "events": [event_fields(event) for event in session.events],
        }
    )
    output.say_events(session.events)
    output.say(f"Sent {len(body)} bytes to {name}.")
    return 0
