"""Bodies of Web Push as they reach a device, made of what an NTF router gives to its provider."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager

from tests.doubles.agent_harness import NtfPlace
from tests.doubles.ntf_harness import NtfHarness
from tests.doubles.push_provider import RecordingProvider
from tocsin.agent.store.interface import AgentStore
from tocsin.crypto.web_push import WebPushReceiver, seal_web_push
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.pushes import Push, parse_push_json
from tocsin.protocol.ntf.web_push_contents import padded_content_bytes, web_push_content
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress, WebPushForm
from tocsin.push.settings import WebPushSettings


def running_with_web_push(place: NtfPlace) -> AbstractAsyncContextManager[NtfHarness]:
    return place.running(
        providers={PushProvider.WEBPUSH: place.provider}, webpush=WebPushSettings(enabled=True)
    )


def web_push_body(push: Push, to: WebPushReceiver, form: WebPushForm = WebPushForm.COMPACT) -> bytes:
    return sealed_body(web_push_content(push, form), to, form)


def sealed_body(content: bytes, to: WebPushReceiver, form: WebPushForm = WebPushForm.COMPACT) -> bytes:
    return seal_web_push(content, to, os.urandom(32), os.urandom(16), padded_to=padded_content_bytes(form))


async def endpoint_token(store: AgentStore, endpoint: str) -> bytes:
    """The device token that the agent made of the endpoint."""
    tokens = [kept.device_token.token for kept in await store.endpoint_secrets()]
    [token] = [token for token in tokens if WebPushAddress.parse(token).url == endpoint]
    return token


async def next_body(provider: RecordingProvider, token: bytes) -> bytes:
    """Of the next push to this device token."""
    request = await provider.next_request(token)
    address = WebPushAddress.parse(token)
    return web_push_body(parse_push_json(request.payload), address.receiver, address.form)
