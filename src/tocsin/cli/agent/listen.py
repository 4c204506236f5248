"""`tocsin agent listen`: prints messages and events as they arrive."""

from __future__ import annotations

import argparse
import asyncio
import signal
import threading
from contextlib import suppress
from typing import Final

from tocsin.agent.runtime.events import AgentEvent, MessageArrived, MessageUnreadable
from tocsin.cli.agent.output import Output
from tocsin.cli.agent.session import add_common_arguments, opened_session, run_command

NAME = "listen"
SUMMARY = "receive messages and keep notifications in order"
DESCRIPTION = (
    "Subscribes to all connections and prints messages and events, one line each, until Ctrl-C. While it runs, "
    "the agent also finishes everything that waited for a router, and checks subscriptions."
)
EXAMPLE = "tocsin agent listen --json --count 1"

END_SECONDS: Final = 1.0
"""Time for work in progress; the next command continues the rest."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--for", dest="seconds", type=float, metavar="SECONDS", help="end after this time")
    parser.add_argument("--count", type=int, metavar="N", help="end after this number of messages")
    add_common_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return run_command(options, lambda output: _listen(options, output))


async def _listen(options: argparse.Namespace, output: Output) -> int:
    ended = asyncio.Event()
    left = options.count

    def on_event(event: AgentEvent) -> None:
        nonlocal left
        output.event(event)
        if left is not None and isinstance(event, MessageArrived | MessageUnreadable):
            left -= 1
            if left <= 0:
                ended.set()

    _end_by_signal(ended)
    async with opened_session(options, on_event, shows_at_once=True) as session:
        failed = await session.agent.connections.subscribe()
        for name, error in failed.items():
            output.result({"event": "not subscribed", "connection": name, "reason": str(error)})
            output.say(f"{name} cannot be subscribed: {error}")
        count = len(await session.store.connections()) - len(failed)
        output.result({"event": "listening", "connections": count})
        output.say(f"Listening to {count} connections. Ctrl-C ends it.")
        with suppress(TimeoutError):
            async with asyncio.timeout(options.seconds):
                await ended.wait()
        await session.agent.connections.unsubscribe()
        await session.at_rest(END_SECONDS)
    return 0


def _end_by_signal(ended: asyncio.Event) -> None:
    """End without an error on Ctrl-C. Only the main thread can handle signals."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
