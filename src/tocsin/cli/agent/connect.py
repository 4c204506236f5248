"""`tocsin agent connect`: creates an invitation, or joins with one."""

from __future__ import annotations

import argparse
import asyncio

from tocsin.agent.runtime.events import AgentEvent, ConnectionReady
from tocsin.cli.agent.folder import server_addresses
from tocsin.cli.agent.output import Output, event_fields
from tocsin.cli.agent.session import AgentSession, add_common_arguments, opened_session, run_command
from tocsin.protocol.addresses import RouterAddress, Scheme

NAME = "connect"
SUMMARY = "create an invitation, or join a connection with one"
DESCRIPTION = (
    "Without an invitation, creates a connection and prints the invitation for the other side. Send it through a "
    "channel that you trust, because the first one who has it can join. With an invitation, joins, and can send at "
    "once. The inviting side can send after it has received the other's greeting, through --wait, `listen` or a push."
)
EXAMPLE = "tocsin agent connect 'smp://…/…#…'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "invitation", nargs="?", metavar="INVITATION", help="the invitation that the other side printed"
    )
    parser.add_argument("--wait", action="store_true", help="wait until both sides can send; Ctrl-C ends it")
    parser.add_argument(
        "--no-notifications",
        action="store_true",
        help="create it without notifications of its messages, as after `mute`",
    )
    parser.add_argument(
        "--smp-server", metavar="ADDRESS", help="the router for our queue, instead of those in agent.ini"
    )
    add_common_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return run_command(options, lambda output: _connect(options, output))


async def _connect(options: argparse.Namespace, output: Output) -> int:
    ready = asyncio.Event()

    def on_event(event: AgentEvent) -> None:
        if isinstance(event, ConnectionReady) and event.connection_id == name:
            ready.set()

    name = ""
    router: RouterAddress | None = None
    if options.smp_server is not None:
        [router] = server_addresses([options.smp_server], Scheme.SMP, "--smp-server")
    async with opened_session(options, on_event) as session:
        name, invitation = await _made(session, options, router)
        finished = await session.at_rest()
        if invitation is not None:
            # Print it now: the other side needs it before there is anything to wait for.
            output.result({"connection": name, "invitation": invitation})
            output.say(f"Connection {name}. Invitation, only for the other side:")
            output.say(invitation)
        if options.wait and not await _is_ready(session, name):
            await ready.wait()
        usable = await _is_ready(session, name) if options.wait else await _can_send(session, name)
    if invitation is None or options.wait:
        output.result(
            {
                "connection": name,
                "ready": usable,
                "finished": finished,
                "events": [event_fields(event) for event in session.events],
            }
        )
    output.say_events(session.events)
    if invitation is None and not usable:
        output.say(
            f"Connection {name}. The greeting has not reached the other side yet: run `tocsin agent listen`."
        )
    elif usable:
        output.say(f"Connection {name}. Next: run `tocsin agent send {name} TEXT`")
    else:
        output.say("Next: run `tocsin agent listen`, which reports when the other side has joined.")
    return 0


async def _made(
    session: AgentSession, options: argparse.Namespace, router: RouterAddress | None
) -> tuple[str, str | None]:
    connections, notifications = session.agent.connections, not options.no_notifications
    if options.invitation is None:
        made = await connections.create(notifications=notifications, subscribe=options.wait, router=router)
        return made.connection_id, made.text
    name = await connections.join(
        options.invitation, notifications=notifications, subscribe=options.wait, router=router
    )
    return name, None


async def _can_send(session: AgentSession, name: str) -> bool:
    return any(queue.secured for queue in await session.store.send_queues(name))


async def _is_ready(session: AgentSession, name: str) -> bool:
    """Return whether both sides can send: our queue is secured too."""
    queues = await session.store.primary_queues([name])
    return await _can_send(session, name) and all(queue.sender_key is not None for queue in queues)
