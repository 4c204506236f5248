"""A trial of an NTF router, which does what a registration does (ntf.md 6.3)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tocsin.agent.runtime.randomness import new_dh_key, new_key
from tocsin.clients import ClientSettings, NtfClient
from tocsin.errors import TocsinError
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.ntf.device_tokens import NULL_TOKEN_TEXT, DeviceToken
from tocsin.protocol.ntf.token_commands import RegisterToken


class TrialStep(Enum):
    CONNECT = "connect"
    CREATE_TOKEN = "create token"  # noqa: S105 - the name of a step
    DELETE_TOKEN = "delete token"  # noqa: S105 - as above
    DISCONNECT = "disconnect"


@dataclass(frozen=True, slots=True)
class RouterUnusable:
    """The step that failed, and why."""

    step: TrialStep
    reason: TocsinError


async def try_ntf_router(address: RouterAddress, settings: ClientSettings) -> RouterUnusable | None:
    """Return None if the router is usable. The trial's token is of the null provider, which never pushes anything."""
    step = TrialStep.CONNECT
    try:
        async with NtfClient.connect(address, settings) as client:
            step = TrialStep.CREATE_TOKEN
            key = new_key()
            token = DeviceToken.parse(NULL_TOKEN_TEXT)
            answer = await client.register_token(RegisterToken(token, key.public, new_dh_key().public), key)
            step = TrialStep.DELETE_TOKEN
            await client.delete_token(answer.token_id, key)
            step = TrialStep.DISCONNECT
    except TocsinError as error:
        return RouterUnusable(step, error)
    return None
