"""`tocsin agent delete`: deletes a connection."""

from __future__ import annotations

import argparse

from tocsin.cli.agent.output import Output, event_fields
from tocsin.cli.agent.session import (
    add_common_arguments,
    connection_named,
    opened_session,
    opened_store,
    run_command,
)

NAME = "delete"
SUMMARY = "delete a connection"
DESCRIPTION = (
    "Deletes a connection with its queues at their routers, its notifications and unreceived messages. "
    "If a router cannot be reached, the connection is gone here, and its queues are deleted there later."
)
EXAMPLE = "tocsin agent delete Zm9vYmFyYmF6cXV4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("connection", metavar="CONNECTION", help="its id, or the beginning of it")
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be deleted, without deleting it"
    )
    add_common_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return run_command(options, lambda output: _delete(options, output))


async def _delete(options: argparse.Namespace, output: Output) -> int:
    if options.dry_run:
        async with opened_store(options) as (store, _):
            name = await connection_named(store, options.connection)
        output.result({"connection": name, "deleted": False, "events": []})
        output.say(f"Would delete {name}.")
        return 0
    async with opened_session(options) as session:
        name = await connection_named(session.store, options.connection)
        await session.agent.connections.delete(name)
    events = [event_fields(event) for event in session.events]
    output.result({"connection": name, "deleted": True, "events": events})
    output.say_events(session.events)
    output.say(f"Deleted {name}.")
    return 0
