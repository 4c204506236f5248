"""Requests of a token to its NTF router: TNEW, TRPL, TVFY, TCHK and TCRN. Each saves what follows its answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tocsin.agent.runtime.randomness import chance, new_dh_key, new_key
from tocsin.agent.runtime.router_clients import RouterClients
from tocsin.agent.runtime.settings import AgentSettings
from tocsin.agent.store.interface import TokenRecords
from tocsin.agent.store.records import AgentToken, NotificationMode, RegistrationDue, VerificationDue
from tocsin.agent.token.registration import (
    TokenStep,
    checked,
    registered,
    replaced,
    retargeted,
    verified,
)
from tocsin.crypto.keys import X25519PrivateKey, private_key_from_der
from tocsin.errors import AgentError, TocsinError
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.ntf_messages import TokenRegisteredWithKey
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.protocol.ntf.token_commands import RegisterToken


class TokenRequests:
    """Everything raises TransportError, HandshakeRefused or ClientError if the router cannot be asked or refuses."""

    def __init__(self, store: TokenRecords, clients: RouterClients, settings: AgentSettings) -> None:
        self._store = store
        self._clients = clients
        self._periodic_minutes = settings.periodic_minutes
        self.routers: Sequence[RouterAddress] = settings.ntf_routers
        """A new token is registered at one of these."""

    async def create(self, device_token: DeviceToken, mode: NotificationMode) -> AgentToken:
        """Save a new token with new keys, and register it. Raises AgentError without an NTF router."""
        if not self.routers:
            raise AgentError("no NTF router is configured")
        router = self.routers[int(chance() * len(self.routers)) % len(self.routers)]
        token = AgentToken(
            device_token,
            router.location,
            new_key().der,
            new_dh_key().raw,
            TokenStatus(TokenState.NEW),
            RegistrationDue(),
            mode,
        )
        return await self._register(await self._saved(token), mode)

    async def perform(
        self, step: TokenStep, token: AgentToken, device_token: DeviceToken, mode: NotificationMode
    ) -> AgentToken:
        """Perform a step for a token that exists, and return it as it was saved."""
        match step:
            case TokenStep.RETARGET:
                token = await self._saved(retargeted(token, device_token, mode))
                return await self._register(token, mode)
            case TokenStep.REPLACE:
                return await self._replace(token, device_token, mode)
            case TokenStep.VERIFY:
                return await self.verify(token, mode)
            case TokenStep.CHECK:
                status, ntf_key = await self.status(token)
                return await self._saved(checked(token, status, mode, ntf_key))
            case _:
                return await self._register(token, mode)

    async def _register(self, token: AgentToken, mode: NotificationMode) -> AgentToken:
        key, dh_key = private_key_from_der(token.key), X25519PrivateKey(token.dh_key)
        command = RegisterToken(token.device_token, key.public, dh_key.public)
        async with self._clients.ntf(token.router) as lease:
            answer = await lease.client.register_token(command, key)
        ntf_key = answer.ntf_key if isinstance(answer, TokenRegisteredWithKey) else None
        secret = dh_key.agree(answer.dh_key)
        return await self._saved(registered(token, answer.token_id, secret, mode, ntf_key))

    async def _replace(
        self, token: AgentToken, device_token: DeviceToken, mode: NotificationMode
    ) -> AgentToken:
        assert token.token_id is not None
        async with self._clients.ntf(token.router) as lease:
            await lease.client.replace_token(token.token_id, device_token, private_key_from_der(token.key))
        return await self._saved(replaced(token, device_token, mode))

    async def verify(
        self, token: AgentToken, mode: NotificationMode, code: bytes | None = None
    ) -> AgentToken:
        """Send a code, by default the one that the token has received."""
        assert token.token_id is not None
        if code is None:
            assert isinstance(token.action, VerificationDue)
            code = token.action.code
        async with self._clients.ntf(token.router) as lease:
            await lease.client.verify_token(token.token_id, code, private_key_from_der(token.key))
        return await self._saved(verified(token, mode))

    async def status(self, token: AgentToken) -> tuple[TokenStatus, NtfKeyOffer | None]:
        """Ask for the token's status and the router's newest key for packets, and save nothing."""
        assert token.token_id is not None
        async with self._clients.ntf(token.router) as lease:
            return await lease.client.check_token_with_key(token.token_id, private_key_from_der(token.key))

    async def start_periodic_pushes(self, token: AgentToken) -> None:
        """Ask for periodic pushes. If that fails, the next registration tries again."""
        assert token.token_id is not None
        key = private_key_from_der(token.key)
        with suppress(TocsinError):
            async with self._clients.ntf(token.router) as lease:
                await lease.client.set_periodic_push(token.token_id, self._periodic_minutes, key)

    async def _saved(self, token: AgentToken) -> AgentToken:
        await self._store.save_token(token)
        return token
