"""The token's registrar: registers the token, proves that it is ours, and notices when it is lost (ntf.md 6.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from tocsin.agent.runtime.error_kinds import ErrorKind, registration_error_kind
from tocsin.agent.runtime.events import EventQueue, TokenRecreated, TokenStatusChanged
from tocsin.agent.runtime.randomness import new_web_push_secret
from tocsin.agent.runtime.tasks import BackgroundTasks
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.records import AgentToken, EndpointSecret, NotificationMode, is_active
from tocsin.agent.subscriptions.supervisor import Supervisor
from tocsin.agent.token.deletion import FormerTokens
from tocsin.agent.token.registration import AFTER_ERRORS, AfterError, TokenStep, seen, step_for, to_verify
from tocsin.agent.token.requests import TokenRequests
from tocsin.crypto.boxes import box_key
from tocsin.crypto.web_push import WebPushSecret
from tocsin.errors import AgentError, StoreError, TocsinError
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import VerificationPush, unseal_code
from tocsin.protocol.ntf.statuses import TokenStatus
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress, WebPushForm

KEPT_ENDPOINTS: Final = 4
"""Web Push endpoints whose pushes the agent can open: the present one, and former ones whose pushes come late."""


class TokenRegistrar:
    """Handles one call at a time: each begins with what the previous one has saved."""

    def __init__(
        self,
        store: AgentStore,
        requests: TokenRequests,
        former_tokens: FormerTokens,
        supervisor: Supervisor,
        events: EventQueue,
        tasks: BackgroundTasks,
    ) -> None:
        self._store = store
        self._requests = requests
        self._former_tokens = former_tokens
        self._supervisor = supervisor
        self._events = events
        self._tasks = tasks
        self._lock = asyncio.Lock()
        self._checking = False

    def set_routers(self, routers: Sequence[RouterAddress]) -> None:
        """Choose the routers for the next new token. An existing one stays where it is."""
        self._requests.routers = tuple(routers)

    async def current(self) -> AgentToken:
        """Return the token. Raises AgentError if there is no token."""
        token = await self._store.token()
        if token is None:
            raise AgentError("there is no token: register one")
        return token

    async def register(self, device_token: DeviceToken, mode: NotificationMode) -> TokenStatus:
        """Take the next possible step of the registration. Apps call this at every start.

        Raises TransportError, HandshakeRefused or ClientError if the router cannot be asked or refuses; then nothing
        has changed, and the next call continues. Raises AgentError without an NTF router.
        """
        async with self._lock:
            return await self._next_step(device_token, mode)

    async def register_endpoint(
        self, endpoint: str, mode: NotificationMode, form: WebPushForm | None = None
    ) -> TokenStatus:
        """Do the same as `register` for the https address that a Web Push distributor gave out.

        Each endpoint has its own secret, which is saved before the router learns of it. Secrets of former endpoints are
        kept for pushes that come late. Without a form, a registration keeps its form, and a new one has the reference's
        if the endpoint fits it. Raises DecodeError if this is not an endpoint, or does not fit the form.
        """
        async with self._lock:
            return await self._next_step(await self._endpoint_token(endpoint, form), mode)

    async def _endpoint_token(self, endpoint: str, form: WebPushForm | None) -> DeviceToken:
        """Return the same token for the same endpoint while its secret is kept, so that its registration continues."""
        for kept in await self._store.endpoint_secrets():
            known = WebPushAddress.parse(kept.device_token.token)
            asked = WebPushAddress.from_url(endpoint, WebPushSecret(kept.secret).receiver, form)
            if known == (replace(asked, form=known.form) if form is None else asked):
                break
        else:
            secret = new_web_push_secret()
            token = WebPushAddress.from_url(endpoint, secret.receiver, form).token()
            kept = EndpointSecret(DeviceToken(PushProvider.WEBPUSH, token), secret.raw)
        await self._store.keep_endpoint_secret(kept, KEPT_ENDPOINTS)
        return kept.device_token

    async def _next_step(self, device_token: DeviceToken, mode: NotificationMode) -> TokenStatus:
        saved = await self._store.token()
        if saved is None:
            return (await self._requests.create(device_token, mode)).status
        step = step_for(saved, device_token)
        try:
            token = await self._requests.perform(step, saved, device_token, mode)
        except TocsinError as error:
            return await self._after_error(step, error, saved, device_token, mode)
        await self._follow(token)
        return token.status

    async def verify(self, push: VerificationPush) -> TokenStatus:
        """Send the code of a verification push back. Raises BadBox or DecodeError for a push of another token."""
        async with self._lock:
            token = await self._store.token()
            if token is None or token.token_id is None or token.secret is None:
                raise AgentError("there is no token to verify")
            code = unseal_code(box_key(token.secret), push)
            if not is_active(token):
                token = to_verify(token, code)
                await self._store.save_token(token)
            try:
                token = await self._requests.verify(token, token.mode, code)
            except TocsinError as error:
                return await self._after_error(TokenStep.VERIFY, error, token, token.device_token, token.mode)
            await self._follow(token)
            return token.status

    async def check(self) -> TokenStatus:
        """Ask the router, and register a new token if it does not know this one (behaviour D10)."""
        async with self._lock:
            was = await self.current()
            if was.token_id is None:
                raise AgentError("the token is not registered")
            try:
                status, ntf_key = await self._requests.status(was)
            except TocsinError as error:
                return await self._after_error(TokenStep.CHECK, error, was, was.device_token, was.mode)
            token = seen(was, status, ntf_key)
            if token != was:
                await self._store.save_token(token)
            if status != was.status:
                self._events.tell(TokenStatusChanged(status))
                if is_active(token) and not is_active(was):
                    await self._follow(token)
            return status

    async def delete(self) -> None:
        """Delete the token here at once, and at the router as soon as it can be reached."""
        async with self._lock:
            await self.current()
            await self._former_tokens.remove_token(delete_at_router=True)
            await self._store.forget_endpoint_secrets()
            await self._supervisor.remove_all()

    def check_in_background(self, fetch_key: bool) -> None:
        """Check the token, because the router seems not to know it, or to fetch its newest key for packets."""
        if not self._checking:
            self._checking = True
            self._tasks.start(self._check_quietly(fetch_key), "token check", errand=True)

    async def _check_quietly(self, fetch_key: bool) -> None:
        try:
            with suppress(AgentError):  # the app deleted it meanwhile
                await self.check()
        except TocsinError as error:
            if not fetch_key or registration_error_kind(error) is not ErrorKind.TEMPORARY:
                raise
        finally:
            self._checking = False

    async def _after_error(
        self,
        step: TokenStep,
        error: TocsinError,
        token: AgentToken,
        device_token: DeviceToken,
        mode: NotificationMode,
    ) -> TokenStatus:
        kind = registration_error_kind(error)
        if isinstance(error, StoreError) or AFTER_ERRORS[step][kind] is AfterError.RAISE:
            raise error
        # A router that says AUTH has nothing to delete. The rows of subscriptions stay: they name the former
        # token, so the supervisor resets each of them when the new one is active (behaviour D11).
        await self._former_tokens.remove_token(delete_at_router=kind is not ErrorKind.AUTH)
        self._events.tell(TokenRecreated(token.router, error))
        if not self._requests.routers:
            self.set_routers([RouterAddress(Scheme.NTF, token.router)])
        return (await self._requests.create(device_token, mode)).status

    async def _follow(self, token: AgentToken) -> None:
        """Create subscriptions for an active token in instant mode, remove them in periodic mode (behaviour D6)."""
        if not is_active(token):
            return
        self._tasks.start(self._requests.start_periodic_pushes(token), "periodic pushes", errand=True)
        if token.mode is NotificationMode.INSTANT:
            await self._supervisor.review()
        else:
            await self._supervisor.remove_all()
