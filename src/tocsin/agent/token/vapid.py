"""The key by which Web Push services know an NTF router. Apps pass it to distributors that ask for it."""

from __future__ import annotations

from dataclasses import replace

from tocsin.clients import ClientSettings, NtfClient, RouterRefused
from tocsin.errors import AgentError
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.error_codes import CommandFault


async def ask_vapid_key(address: RouterAddress, settings: ClientSettings) -> bytes:
    """Return the public key, an uncompressed P-256 point, which the router's identity has signed.

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
