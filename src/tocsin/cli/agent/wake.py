"""`tocsin agent wake`: acts on a push."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tocsin.agent import Fetched, ToFetch, TokenVerified, WakeResult, Woken
from tocsin.agent.runtime.events import AgentEvent, MessageEvent
from tocsin.cli.agent.next_steps import sentence
from tocsin.cli.agent.output import Output, event_fields, time_text, token_status
from tocsin.cli.agent.pushes import PUSH_HELP, WEB_PUSH_HELP, read_push, read_web_push
from tocsin.cli.agent.session import AgentSession, add_common_arguments, opened_session, run_command

NAME = "wake"
SUMMARY = "open a push and fetch the messages that it announces"
DESCRIPTION = (
    "Opens the push, prints which connections have messages and which items are unreadable, and fetches the "
    "messages. A verification push verifies the token."
)
EXAMPLE = "tocsin agent wake push.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("push", nargs="?", metavar="PUSH_JSON", help=PUSH_HELP)
    given.add_argument("--web-push", metavar="FILE", help=WEB_PUSH_HELP)
    parser.add_argument(
        "--no-fetch", action="store_true", help="show what there is to fetch, without fetching it"
    )
    add_common_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return run_command(options, lambda output: _wake(options, output))


async def _wake(options: argparse.Namespace, output: Output) -> int:
    wake = await _given_push(options)
    fetched: list[Fetched] = []
    async with opened_session(options) as session:
        result = await wake(session)
        if isinstance(result, Woken) and not options.no_fetch:
            fetched = await session.agent.fetch(result.to_fetch)
        await session.at_rest()
        # Show messages before they are settled. Later ones are for the next command.
        if isinstance(result, TokenVerified):
            session.shown = 0
            output.result({"kind": "verification", "status": token_status(result.status)})
            output.say(f"The push verified the token, which is {token_status(result.status)}.")
        else:
            session.shown = len(session.events)
            _report(output, result, fetched, session.events)
            await session.settle(*(message for each in fetched for message in each.messages))
    return 1 if any(each.failure is not None for each in fetched) else 0


async def _given_push(options: argparse.Namespace) -> Callable[[AgentSession], Awaitable[WakeResult]]:
    """Read the push before the agent is opened. Returns a function that wakes the agent."""
    if options.web_push is not None:
        body = await asyncio.to_thread(read_web_push, options.web_push)
        return lambda session: session.agent.wake_by_web_push(body)
    payload = await asyncio.to_thread(read_push, options.push)
    return lambda session: session.agent.wake(payload)


def _report(output: Output, woken: Woken, fetched: Sequence[Fetched], events: Sequence[AgentEvent]) -> None:
    """Report messages of the push, then unshown earlier ones and those of a queue that was replaced."""
    messages = [message for each in fetched for message in each.messages]
    messages += [event for event in events if isinstance(event, MessageEvent)]
    others = [event for event in events if not isinstance(event, MessageEvent)]
    output.result(_fields(woken, fetched, messages, others))
    _say(output, woken, fetched, messages, others)


def _fields(
    woken: Woken,
    fetched: Sequence[Fetched],
    messages: Sequence[AgentEvent],
    others: Sequence[AgentEvent],
) -> dict[str, Any]:
    shown = {message for each in fetched for message in each.to_show}
    return {
        "kind": "messages",
        "to_fetch": [_item_fields(item) for item in woken.to_fetch],
        "unreadable": [
            {"position": each.position, "reason": each.reason.value, "detail": each.detail}
            for each in woken.unreadable
        ],
        "already_received": woken.already_received,
        "messages": [event_fields(message) | {"shown": message in shown} for message in messages],
        "failures": [
            {"connection": each.item.connection_id, "reason": str(each.failure)}
            for each in fetched
            if each.failure is not None
        ],
        "events": [event_fields(event) for event in others],
    }


def _item_fields(item: ToFetch) -> dict[str, Any]:
    return {
        "connection": item.connection_id,
        "notified_at": item.notified_at,
        "sent_at": None if item.meta is None else item.meta.sent_at,
        "mention": item.is_mention,
    }


def _say(
    output: Output,
    woken: Woken,
    fetched: Sequence[Fetched],
    messages: Sequence[AgentEvent],
    others: Sequence[AgentEvent],
) -> None:
    for item in woken.to_fetch:
        when = "" if item.meta is None else f", sent {time_text(item.meta.sent_at)}"
        kind = "a mention" if item.is_mention else "messages"
        output.say(f"{item.connection_id} may have {kind}{when}")
    for each in woken.unreadable:
        detail = f" ({each.detail})" if each.detail else ""
        output.say(f"item {each.position + 1} of the push: {each.reason.value}{detail}")
    if woken.already_received:
        output.say(f"{woken.already_received} items are about messages that were already received")
    output.say_events((*messages, *others))
    for failed in fetched:
        if failed.failure is not None:
            output.say(f"{failed.item.connection_id} cannot be fetched: {sentence(failed.failure)}", "red")
    if not messages and not woken.unreadable:
        output.say("No new messages." if fetched or not woken.to_fetch else "Nothing was fetched.")
