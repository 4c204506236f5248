"""Inquiries at an NTF router before a registration: whether it is usable (ntf.md 6.3), and its key for Web Push."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from tocsin.agent.runtime.randomness import new_dh_key, new_key
from tocsin.clients import ClientSettings, NtfClient, RouterRefused
from tocsin.errors import AgentError, TocsinError
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.error_codes import CommandFault
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


async def ask_vapid_key(address: RouterAddress, settings: ClientSettings) -> bytes:
    """Return the public key by which Web Push services know the router: apps pass it to distributors that ask for it.

    It is an uncompressed P-256 point, which the router's identity has signed.
    Raises AgentError if the router has none or cannot tell it, and what `NtfClient.connect` raises.
    """
    direct = replace(settings, dial=replace(settings.dial, direct=True))
    async with NtfClient.connect(address, direct) as client:
        if not client.direct:
            raise AgentError(
                f"{address.name} cannot tell its key for Web Push, because it has no direct notifications: "
                "its operator sees it with `tocsin ntf vapid`"
            )
        try:
            return await client.vapid_key(address.location.key_hash)
        except RouterRefused as refused:
            if refused.error is CommandFault.PROHIBITED:
                raise AgentError(f"{address.name} has no Web Push: choose another NTF router") from refused
            raise
