"""`tocsin agent verify`: proves that the device token is ours."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable

from tocsin.agent import TokenVerified
from tocsin.cli.agent.output import Output, event_fields, token_status
from tocsin.cli.agent.pushes import PUSH_HELP, WEB_PUSH_HELP, read_push, read_web_push
from tocsin.cli.agent.session import AgentSession, add_common_arguments, opened_session, run_command
from tocsin.crypto.boxes import NONCE_BYTES, box_key
from tocsin.errors import AgentError, ConfigError, DecodeError
from tocsin.protocol.ntf.pushes import Push, VerificationPush, parse_push_json, seal_code
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.wire.base64url import decode_base64url

NAME = "verify"
SUMMARY = "verify the token with the push that arrived"
DESCRIPTION = (
    "Opens the verification push and returns its code to the NTF router, which makes the token active. In instant "
    "mode the agent then creates a subscription for every connection."
)
EXAMPLE = "tocsin agent verify push.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("push", nargs="?", metavar="PUSH_JSON", help=PUSH_HELP)
    given.add_argument("--web-push", metavar="FILE", help=WEB_PUSH_HELP)
    given.add_argument("--code", help="the decrypted code in base64url, instead of the push: --code=…")
    add_common_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return run_command(options, lambda output: _verify(options, output))


async def _verify(options: argparse.Namespace, output: Output) -> int:
    verify = await _given(options)
    async with opened_session(options) as session:
        status = await verify(session)
        finished = await session.at_rest()
    output.result(
        {
            "status": token_status(status),
            "finished": finished,
            "events": [event_fields(event) for event in session.events],
        }
    )
    output.say(f"The token is {token_status(status)}.")
    output.say_events(session.events)
    if status.state is TokenState.ACTIVE:
        output.say("Messages now wake the device. Next: run `tocsin agent wake` with each push.")
        return 0
    output.say("Next: run `tocsin agent verify` with the push that arrives for the new registration.")
    return 1


async def _given(options: argparse.Namespace) -> Callable[[AgentSession], Awaitable[TokenStatus]]:
    """Read the push before the agent is opened. Returns a function that verifies the token."""
    if options.push is not None:
        push = _required(parse_push_json(await asyncio.to_thread(read_push, options.push)))
        return lambda session: session.agent.tokens.verify(push)
    if options.web_push is not None:
        body = await asyncio.to_thread(read_web_push, options.web_push)
        return lambda session: _by_web_push(session, body)
    return lambda session: _with_code(session, options.code)


def _required(push: Push) -> VerificationPush:
    if not isinstance(push, VerificationPush):
        raise AgentError("the push is not a verification: run `tocsin agent wake` with it")
    return push


async def _by_web_push(session: AgentSession, body: bytes) -> TokenStatus:
    _required(await session.agent.open_web_push(body))
    woken = await session.agent.wake_by_web_push(body)
    assert isinstance(woken, TokenVerified)
    return woken.status


async def _with_code(session: AgentSession, text: str) -> TokenStatus:
    token = await session.agent.tokens.current()
    if token.secret is None:
        raise AgentError("the token is not registered: run `tocsin agent register` first")
    try:
        code = decode_base64url(text)
    except DecodeError as error:
        raise ConfigError(f"--code: {error}; give the code in base64url, or the push itself") from error
    push = seal_code(box_key(token.secret), os.urandom(NONCE_BYTES), code)
    return await session.agent.tokens.verify(push)
