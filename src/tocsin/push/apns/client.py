"""Apple's push service over several HTTP/2 connections (ntf.md 3.3, 3.6)."""

from __future__ import annotations

from functools import partial
from typing import Final

from tocsin.push.apns.outcome import EXPIRED_PROVIDER_TOKEN, apns_outcome
from tocsin.push.apns.request import PATH, ProviderToken, own_headers, shared_headers
from tocsin.push.http2.connection import Http2Connection, Http2Limits, HttpsServer
from tocsin.push.http2.frames import SharedHeaders
from tocsin.push.http2.push_provider import Http2PushProvider, PushHost, PushSending, tls_context
from tocsin.push.http2.streams import Http2Answer
from tocsin.push.provider import RetryLater, Urgency
from tocsin.push.settings import ApnsEndpoint, ApnsSettings

_UNAVAILABLE: Final = 503


class ApnsProvider(Http2PushProvider):
    """One environment of Apple's service."""

    def __init__(self, endpoint: ApnsEndpoint, settings: ApnsSettings, token: ProviderToken | None) -> None:
        """All environments share `token`. Raises OSError if the CA file cannot be read."""
        limits = Http2Limits(
            connect=settings.connect_timeout,
            request=settings.request_timeout,
            watch=min(1.0, settings.request_timeout / 10),
        )
        context = tls_context(endpoint.ca_file)
        super().__init__(
            PushHost("APNs", HttpsServer(endpoint.host, endpoint.port, context), settings.connections), limits
        )
        self._token = token
        self._authority = endpoint.host.encode()
        self._topic = settings.topic.encode()
        self._shared: dict[Urgency, tuple[bytes | None, SharedHeaders]] = {}

    def _send(self, connection: Http2Connection, sending: PushSending) -> None:
        sending.authorization = None if self._token is None else self._token.authorization()
        push = sending.push
        shared = self._shared_headers(push.urgency, sending.authorization)
        answered = partial(self._answered, connection, sending)
        connection.request(shared, PATH + push.device_token, own_headers(push), push.payload, answered)

    def _shared_headers(self, urgency: Urgency, authorization: bytes | None) -> SharedHeaders:
        """Return the shared headers, the same object until the authorization changes."""
        known = self._shared.get(urgency)
        if known is None or known[0] is not authorization:
            shared = shared_headers(
                urgency, authority=self._authority, topic=self._topic, authorization=authorization
            )
            known = self._shared[urgency] = authorization, shared
        return known[1]

    def _answer(self, connection: Http2Connection, sending: PushSending, answer: Http2Answer) -> None:
        outcome = apns_outcome(answer)
        if answer.status == _UNAVAILABLE:
            connection.retire()  # the next attempt uses another token
        if (
            isinstance(outcome, RetryLater)
            and outcome.reason == EXPIRED_PROVIDER_TOKEN
            and self._token is not None
            and sending.authorization is not None
            and self._token.expired(sending.authorization)
        ):
            self._dispatch(sending)  # repeat with the new token; a refusal of that one is final
            return
        sending.answered(outcome)
