"""Firebase Cloud Messaging over several HTTP/2 connections.

Theory of operation. Every push needs an access token. One task at a time asks Google for it: at the first push, before
the token expires, and when a push is refused because of it. Pushes without a token wait for that task; if it fails,
they fail too, and the delivery decides when to try again. A refused push is sent again with a new token, once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from tocsin.errors import DecodeError
from tocsin.push.fcm.access_tokens import AccessTokens
from tocsin.push.fcm.outcome import UNAUTHENTICATED, fcm_outcome
from tocsin.push.fcm.request import fcm_body, send_path
from tocsin.push.fcm.service_account import HTTPS_PORT, ServiceAccount
from tocsin.push.http2.connection import Http2Connection, Http2Limits, HttpsServer
from tocsin.push.http2.frames import SharedHeaders
from tocsin.push.http2.push_provider import Http2PushProvider, PushHost, PushSending, tls_context
from tocsin.push.http2.streams import Http2Answer
from tocsin.push.provider import CredentialCounts, PushOutcome, PushRefused, PushRequest, RetryLater
from tocsin.push.settings import FcmSettings

NOT_A_PUSH: Final = "payload"
"""The reason of a push whose payload Firebase would not take."""

logger = logging.getLogger(__name__)


class FcmProvider(Http2PushProvider):
    """The devices of one Firebase project."""

    def __init__(self, settings: FcmSettings, account: ServiceAccount, now: Callable[[], float]) -> None:
        """Take the time as Unix time. Raises OSError if the CA file cannot be read."""
        limits = Http2Limits(
            connect=settings.timeout, request=settings.timeout, watch=min(1.0, settings.timeout / 10)
        )
        context = tls_context(settings.ca_file)
        server = HttpsServer(settings.host, settings.port, context)
        super().__init__(PushHost("FCM", server, settings.connections), limits)
        self._now = now
        self._path = send_path(account.project)
        name = settings.host if settings.port == HTTPS_PORT else f"{settings.host}:{settings.port}"
        self._authority = name.encode()
        self._tokens = AccessTokens(account, context, limits, now)
        self._shared: tuple[bytes, SharedHeaders] | None = None
        self._unauthorized: list[PushSending] = []
        """Pushes that wait for an access token."""
        self._renewing: asyncio.Task[None] | None = None

    @property
    def room(self) -> int:
        return max(0, super().room - len(self._unauthorized))

    @property
    def in_flight(self) -> int:
        return super().in_flight + len(self._unauthorized)

    @property
    def credentials(self) -> CredentialCounts:
        return self._tokens.counts

    def submit(self, push: PushRequest, answered: Callable[[PushOutcome], None]) -> None:
        self._authorize(PushSending(push, answered))

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        self._fail_unauthorized(RetryLater("closed"))
        await super().close()

    # Access tokens

    def _authorize(self, sending: PushSending) -> None:
        if self._closed:
            self._loop.call_soon(sending.answered, RetryLater("closed"))
            return
        now = self._now()
        sending.authorization = self._tokens.fresh(now)
        if sending.authorization is None:
            if self._renewing is None and self._tokens.due(now):
                self._renewing = asyncio.create_task(self._renew())
            sending.authorization = self._tokens.authorization(now)
        if sending.authorization is None:
            self._unauthorized.append(sending)
        else:
            self._dispatch(sending)

    async def _renew(self) -> None:
        try:
            failure = await self._tokens.renew()
        finally:
            self._renewing = None
        if failure is not None:
            logger.warning("no access token for FCM: %s", failure.reason)
            if self._tokens.authorization(self._now()) is None:
                self._fail_unauthorized(failure)
        waiting, self._unauthorized = self._unauthorized, []
        for sending in waiting:
            self._authorize(sending)
        self._use_room()

    def _fail_unauthorized(self, failure: RetryLater) -> None:
        waiting, self._unauthorized = self._unauthorized, []
        for sending in waiting:
            sending.answered(failure)

    # Requests

    def _send(self, connection: Http2Connection, sending: PushSending) -> None:
        assert sending.authorization is not None
        try:
            body = fcm_body(sending.push, self._now())
        except (DecodeError, UnicodeError):
            self._loop.call_soon(sending.answered, PushRefused(NOT_A_PUSH))
            return
        shared = self._shared_headers(sending.authorization)
        connection.request(shared, b"", b"", body, partial(self._answered, connection, sending))

    def _shared_headers(self, authorization: bytes) -> SharedHeaders:
        """Return the headers of all pushes, the same object until the access token changes."""
        if self._shared is None or self._shared[0] is not authorization:
            before = (
                (b":authority", self._authority, False),
                (b":scheme", b"https", False),
                (b":method", b"POST", False),
                (b":path", self._path, False),
            )
            after = (
                (b"content-type", b"application/json", False),
                (b"authorization", authorization, False),
            )
            self._shared = authorization, SharedHeaders(before, after)
        return self._shared[1]

    def _answer(self, connection: Http2Connection, sending: PushSending, answer: Http2Answer) -> None:
        outcome = fcm_outcome(answer)
        is_refused = isinstance(outcome, RetryLater) and outcome.reason == UNAUTHENTICATED
        if is_refused and not sending.is_renewed:
            sending.is_renewed = True
            self._tokens.refused(sending.authorization)
            self._authorize(sending)
            return
        sending.answered(outcome)
