"""The token: registering it, proving that it is ours, and finding out when it is not any more (ntf.md 6.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from tocsin.agent.runtime.error_kinds import ErrorKind, error_kind
from tocsin.agent.runtime.events import TokenRecreated, TokenStatusChanged
from tocsin.agent.runtime.parts import AgentParts
from tocsin.agent.runtime.randomness import chance, new_dh_key, new_key, new_web_push_secret
from tocsin.agent.runtime.tasks import BackgroundTasks
from tocsin.agent.store.records import AgentToken, EndpointSecret, NotificationMode, Register, Verify
from tocsin.agent.subscriptions.supervisor import Supervisor
from tocsin.agent.token.registration import (
    AfterError,
    Step,
    after_error,
    checked,
    is_active,
    registered,
    replaced,
    retargeted,
    seen,
    step_for,
    to_verify,
    verified,
)
from tocsin.crypto.boxes import box_key
from tocsin.crypto.keys import X25519PrivateKey, private_key_from_der
from tocsin.crypto.web_push import WebPushSecret
from tocsin.errors import AgentError, StoreError, TocsinError
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.ntf_messages import TokenRegisteredWithKey
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import VerificationPush, unseal_code
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.protocol.ntf.token_commands import RegisterToken
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress

KEPT_ENDPOINTS: Final = 4
"""Web Push endpoints whose pushes can be opened: the present one, and former ones whose pushes come late."""


class Tokens:
    """One call at a time: each begins with what the one before has saved."""

    def __init__(self, parts: AgentParts, supervisor: Supervisor, tasks: BackgroundTasks) -> None:
        self._store = parts.store
        self._clients = parts.clients
        self._clock = parts.clock
        self._events = parts.events
        self._periodic_minutes = parts.settings.periodic_minutes
        self._routers: Sequence[RouterAddress] = parts.settings.ntf_routers
        self._supervisor = supervisor
        self._tasks = tasks
        self._lock = asyncio.Lock()
        self._suspected = False

    def set_routers(self, routers: Sequence[RouterAddress]) -> None:
        """For the next token that is created; one that exists stays where it is."""
        self._routers = tuple(routers)

    async def current(self) -> AgentToken:
        """Raises AgentError if there is none."""
        token = await self._store.token()
        if token is None:
            raise AgentError("there is no token: register one")
        return token

    async def register(self, device_token: DeviceToken, mode: NotificationMode) -> TokenStatus:
        """Brings the registration to the next step that can be taken. To be called at every start of the app.

        Raises TransportError, HandshakeRefused or ClientError if the router cannot be asked or refuses; then nothing
        has changed, and the next call goes on. Raises AgentError without an NTF router.
        """
        async with self._lock:
            return await self._next_step(device_token, mode)

    async def register_endpoint(self, endpoint: str, mode: NotificationMode) -> TokenStatus:
        """`register` for the https address that a distributor of Web Push gave out, with a secret of its own.

        The secret is kept before the router hears of it, and those of former endpoints for pushes that come late.
        Raises DecodeError for what is no endpoint.
        """
        async with self._lock:
            return await self._next_step(await self._endpoint_token(endpoint), mode)

    async def _endpoint_token(self, endpoint: str) -> DeviceToken:
        """The same for the same endpoint while its secret is kept, so that the registration goes on."""
        for kept in await self._store.endpoint_secrets():
            address = WebPushAddress.from_url(endpoint, WebPushSecret(kept.secret).receiver)
            if kept.device_token.token == address.token():
                break
        else:
            secret = new_web_push_secret()
            token = WebPushAddress.from_url(endpoint, secret.receiver).token()
            kept = EndpointSecret(DeviceToken(PushProvider.WEBPUSH, token), secret.raw)
        await self._store.keep_endpoint_secret(kept, KEPT_ENDPOINTS)
        return kept.device_token

    async def _next_step(self, device_token: DeviceToken, mode: NotificationMode) -> TokenStatus:
        saved = await self._store.token()
        step = step_for(saved, device_token)
        if saved is None:
            return await self._create(device_token, mode)
        try:
            token = await _STEPS[step](self, saved, device_token, mode)
        except TocsinError as error:
            return await self._after_error(step, error, saved, device_token, mode)
        await self._follow(token)
        return token.status

    async def verify(self, push: VerificationPush) -> TokenStatus:
        """Sends the code of a verification push back. Raises BadBox or DecodeError for a push of another token."""
        async with self._lock:
            token = await self._store.token()
            if token is None or token.token_id is None or token.secret is None:
                raise AgentError("there is no token to verify")
            code = unseal_code(box_key(token.secret), push)
            if not is_active(token):
                token = to_verify(token, code)
                await self._store.save_token(token)
            try:
                token = await self._verified(token, code, token.mode)
            except TocsinError as error:
                return await self._after_error(Step.VERIFY, error, token, token.device_token, token.mode)
            await self._follow(token)
            return token.status

    async def check(self) -> TokenStatus:
        """Asks the router, and registers anew if it does not know the token (behaviour D10)."""
        async with self._lock:
            token = await self.current()
            if token.token_id is None:
                raise AgentError("the token is not registered")
            was_active = is_active(token)
            try:
                status, ntf_key = await self._status(token)
            except TocsinError as error:
                return await self._after_error(Step.CHECK, error, token, token.device_token, token.mode)
            was, token = token, seen(token, status, ntf_key)
            if token != was:
                await self._store.save_token(token)
            if status != was.status:
                self._events.tell(TokenStatusChanged(status))
                if is_active(token) and not was_active:
                    await self._follow(token)
            return status

    async def delete(self) -> None:
        """At once here; at the router as soon as it can be reached."""
        async with self._lock:
            token = await self.current()
            if await self._store.remove_token(delete_at_router=True, now=int(self._clock.now())):
                self._supervisor.kick_deletion(token.router)
            await self._store.forget_endpoint_secrets()
            await self._supervisor.remove_all()

    def suspect(self) -> None:
        """Something says that the router does not know the token: it is checked in the background."""
        self._check_in_background()

    def fetch_key(self) -> None:
        """The key for packets is of no use any more: TCHK brings the newest, if the router can be reached now."""
        self._check_in_background(whatever_happens=True)

    def _check_in_background(self, *, whatever_happens: bool = False) -> None:
        if not self._suspected:
            self._suspected = True
            self._tasks.start(self._check_suspected(whatever_happens), "token check", errand=True)

    async def _check_suspected(self, whatever_happens: bool) -> None:
        try:
            with suppress(AgentError):  # it was deleted meanwhile
                await self.check()
        except TocsinError as error:
            if not whatever_happens or error_kind(error) is not ErrorKind.TEMPORARY:
                raise
        finally:
            self._suspected = False

    # The steps

    async def _create(self, device_token: DeviceToken, mode: NotificationMode) -> TokenStatus:
        token = AgentToken(
            device_token,
            self._chosen_router(),
            new_key().der,
            new_dh_key().raw,
            TokenStatus(TokenState.NEW),
            Register(),
            mode,
        )
        await self._store.save_token(token)
        return (await self._register(token, device_token, mode)).status

    def _chosen_router(self) -> RouterLocation:
        if not self._routers:
            raise AgentError("no NTF router is configured")
        return self._routers[int(chance() * len(self._routers)) % len(self._routers)].location

    async def _register(
        self, token: AgentToken, _device_token: DeviceToken, mode: NotificationMode
    ) -> AgentToken:
        key, dh_key = private_key_from_der(token.key), X25519PrivateKey(token.dh_key)
        command = RegisterToken(token.device_token, key.public, dh_key.public)
        async with self._clients.ntf(token.router) as lease:
            answer = await lease.client.register_token(command, key)
        ntf_key = answer.ntf_key if isinstance(answer, TokenRegisteredWithKey) else None
        secret = dh_key.agree(answer.dh_key)
        return await self._saved(registered(token, answer.token_id, secret, mode, ntf_key))

    async def _retarget(
        self, token: AgentToken, device_token: DeviceToken, mode: NotificationMode
    ) -> AgentToken:
        token = await self._saved(retargeted(token, device_token, mode))
        return await self._register(token, device_token, mode)

    async def _replace(
        self, token: AgentToken, device_token: DeviceToken, mode: NotificationMode
    ) -> AgentToken:
        assert token.token_id is not None
        async with self._clients.ntf(token.router) as lease:
            await lease.client.replace_token(token.token_id, device_token, private_key_from_der(token.key))
        return await self._saved(replaced(token, device_token, mode))

    async def _verify(
        self, token: AgentToken, _device_token: DeviceToken, mode: NotificationMode
    ) -> AgentToken:
        assert isinstance(token.action, Verify)
        return await self._verified(token, token.action.code, mode)

    async def _verified(self, token: AgentToken, code: bytes, mode: NotificationMode) -> AgentToken:
        assert token.token_id is not None
        async with self._clients.ntf(token.router) as lease:
            await lease.client.verify_token(token.token_id, code, private_key_from_der(token.key))
        return await self._saved(verified(token, mode))

    async def _check(
        self, token: AgentToken, _device_token: DeviceToken, mode: NotificationMode
    ) -> AgentToken:
        status, ntf_key = await self._status(token)
        return await self._saved(checked(token, status, mode, ntf_key))

    async def _status(self, token: AgentToken) -> tuple[TokenStatus, NtfKeyOffer | None]:
        assert token.token_id is not None
        async with self._clients.ntf(token.router) as lease:
            return await lease.client.check_token_with_key(token.token_id, private_key_from_der(token.key))

    async def _saved(self, token: AgentToken) -> AgentToken:
        await self._store.save_token(token)
        return token

    async def _after_error(
        self,
        step: Step,
        error: TocsinError,
        token: AgentToken,
        device_token: DeviceToken,
        mode: NotificationMode,
    ) -> TokenStatus:
        kind = error_kind(error)
        if isinstance(error, StoreError) or after_error(step, kind) is AfterError.RAISE:
            raise error
        # A router that says AUTH has nothing to delete. The rows of subscriptions stay: they name the former
        # token, so each is reset when the new one is active (behaviour D11).
        known = kind is not ErrorKind.AUTH
        if await self._store.remove_token(delete_at_router=known, now=int(self._clock.now())):
            self._supervisor.kick_deletion(token.router)
        self._events.tell(TokenRecreated(token.router, error))
        if not self._routers:
            self.set_routers([RouterAddress(Scheme.NTF, token.router)])
        return await self._create(device_token, mode)

    async def _follow(self, token: AgentToken) -> None:
        """An active token has subscriptions in instant mode and none in periodic mode (behaviour D6)."""
        if not is_active(token):
            return
        self._tasks.start(self._start_periodic_pushes(token), "periodic pushes", errand=True)
        if token.mode is NotificationMode.INSTANT:
            await self._supervisor.review()
        else:
            await self._supervisor.remove_all()

    async def _start_periodic_pushes(self, token: AgentToken) -> None:
        """If it fails, the next registration does it."""
        assert token.token_id is not None
        key = private_key_from_der(token.key)
        with suppress(TocsinError):
            async with self._clients.ntf(token.router) as lease:
                await lease.client.set_periodic_push(token.token_id, self._periodic_minutes, key)


_STEPS: Final[
    dict[Step, Callable[[Tokens, AgentToken, DeviceToken, NotificationMode], Awaitable[AgentToken]]]
] = {
    Step.REGISTER: Tokens._register,
    Step.RETARGET: Tokens._retarget,
    Step.REPLACE: Tokens._replace,
    Step.VERIFY: Tokens._verify,
    Step.CHECK: Tokens._check,
}
