"""An agent that runs during one command."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tocsin.agent import Agent
from tocsin.agent.runtime.events import AgentEvent, MessageEvent
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.sqlite.store import AgentSqliteStore, opened_agent_store
from tocsin.cli.agent.folder import (
    DEFAULT_FOLDER,
    FOLDER_VARIABLE,
    PASSPHRASE_VARIABLE,
    STORE_FILE,
    AgentFile,
    agent_folder,
    passphrase_of,
    read_agent_file,
)
from tocsin.cli.agent.next_steps import next_step, sentence
from tocsin.cli.agent.output import Output
from tocsin.errors import AgentError, TocsinError

DEFAULT_TIMEOUT: Final = 15.0


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--folder",
        type=Path,
        help=f"the agent's folder (default: ${FOLDER_VARIABLE} or {DEFAULT_FOLDER})",
    )
    parser.add_argument(
        "--passphrase-file",
        type=Path,
        metavar="FILE",
        help=f"a file with the store's passphrase in its first line (default: ${PASSPHRASE_VARIABLE})",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=DEFAULT_TIMEOUT,
        metavar="SECONDS",
        help="time limit of each step at a router (default: 15)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 86_400:
        raise argparse.ArgumentTypeError("give a number of seconds, at most 86400")
    return seconds


def run_command(options: argparse.Namespace, work: Callable[[Output], Coroutine[Any, Any, int]]) -> int:
    """Run a command and return its exit code. Prints an error to standard error, and with --json as an object."""
    output = Output(options.json)
    try:
        return asyncio.run(work(output))
    except TocsinError as error:
        if options.json:
            output.result({"error": str(error), "next_step": next_step(error) or None})
        print(f"tocsin: {sentence(error)}", file=sys.stderr)
        return 1


@dataclass
class AgentSession:
    agent: Agent
    store: AgentSqliteStore
    timeout: float
    on_event: Callable[[AgentEvent], None] | None = None
    shows_at_once: bool = False
    """Whether `on_event` shows messages, so that they can be settled."""
    events: list[AgentEvent] = field(default_factory=list)
    """The agent's events, complete when the session has ended."""
    shown: int | None = None
    """How many of these the command has shown; None: it shows all of them when the session has ended."""

    def take(self, event: AgentEvent) -> None:
        self.events.append(event)
        if self.on_event is not None:
            self.on_event(event)

    async def settle(self, *messages: MessageEvent) -> None:
        """Settle these messages and those among the shown events, so that the agent does not hand them out again."""
        seen = [event for event in self.events[: self.shown] if isinstance(event, MessageEvent)]
        await self.agent.settled(*messages, *seen)

    async def at_rest(self, limit: float | None = None) -> bool:
        """Wait until everything is done. Returns False if something has to wait, usually for a router."""
        try:
            async with asyncio.timeout(self.timeout if limit is None else limit):
                await self.agent.until_at_rest()
        except TimeoutError:
            return False
        return True


@asynccontextmanager
async def opened_store(options: argparse.Namespace) -> AsyncIterator[tuple[AgentSqliteStore, AgentFile]]:
    """Open the store without an agent, so that nothing is sent to a router."""
    folder = agent_folder(options)
    file = read_agent_file(folder)
    async with opened_agent_store(folder / STORE_FILE, passphrase=passphrase_of(options)) as store:
        yield store, file


@asynccontextmanager
async def opened_session(
    options: argparse.Namespace,
    on_event: Callable[[AgentEvent], None] | None = None,
    *,
    shows_at_once: bool = False,
) -> AsyncIterator[AgentSession]:
    async with opened_store(options) as (store, file):
        agent = Agent(store, file.settings(options.timeout))
        session = AgentSession(agent, store, options.timeout, on_event, shows_at_once)
        reader = asyncio.create_task(_read(session))
        try:
            async with agent:
                yield session
        finally:
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader
        for event in agent.waiting_events():
            session.take(event)
        await session.settle()


async def _read(session: AgentSession) -> None:
    while True:
        event = await session.agent.next_event()
        session.take(event)
        if session.shows_at_once and isinstance(event, MessageEvent):
            await session.agent.settled(event)


async def connection_named(store: AgentStore, text: str) -> str:
    """Find a connection by its id or a unique beginning of it. Raises AgentError."""
    names = [connection.connection_id for connection in await store.connections()]
    found = [name for name in names if name.startswith(text)] if text else []
    if text in found:
        return text
    if len(found) > 1:
        raise AgentError(f"{len(found)} connections begin with {text[:16]!r}: give more of the id")
    if not found:
        raise AgentError("there is no such connection")
    return found[0]
