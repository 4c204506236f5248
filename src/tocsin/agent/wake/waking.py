"""Acting on a push: verify the token, or find out what to fetch, and fetch it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import assert_never

from tocsin.agent.connections.listener import QueueListener
from tocsin.agent.connections.messages import MessageReceiver
from tocsin.agent.runtime.events import MessageEvent
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.records import EndpointSecret
from tocsin.agent.token.registrar import TokenRegistrar
from tocsin.agent.wake.notified import Fetched, ToFetch, TokenVerified, WakeResult, Woken, choose_queues
from tocsin.crypto.boxes import box_key
from tocsin.crypto.web_push import WebPushSecret
from tocsin.errors import AgentError, BadBox
from tocsin.protocol.agent.push_contents import open_notifications
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.ntf.pushes import (
    CheckMessagesPush,
    MessagePush,
    Push,
    PushedNotification,
    VerificationPush,
    parse_push_json,
)
from tocsin.protocol.ntf.web_push_contents import parse_web_push_content


class Waking:
    def __init__(
        self,
        store: AgentStore,
        tokens: TokenRegistrar,
        receiver: MessageReceiver,
        listener: QueueListener,
        fetch_at_once: int,
    ) -> None:
        self._store = store
        self._tokens = tokens
        self._receiver = receiver
        self._listener = listener
        self._at_once = fetch_at_once

    async def wake(self, payload: bytes) -> WakeResult:
        """Act on the JSON of a push.

        Raises DecodeError if this is not a push, BadBox if it is for another token or was altered, AgentError without
        a token, and for a verification the errors of `TokenRegistrar.verify`.
        """
        return await self._woken_by(parse_push_json(payload))

    async def wake_by_web_push(self, body: bytes) -> WakeResult:
        """Act on the body of a Web Push. Also raises the errors of `open_web_push`."""
        endpoint, push = await self._opened(body)
        if isinstance(push, VerificationPush):
            token = await self._tokens.current()
            # The code is of a former registration: the router would refuse it, and the agent would replace the token.
            if token.device_token != endpoint.device_token:
                raise AgentError("the verification came to a former Web Push endpoint of the token")
        return await self._woken_by(push)

    async def open_web_push(self, body: bytes) -> Push:
        """Return the contents of a Web Push to any of the last endpoints.

        Raises BadBox if it is for none of them, DecodeError if it is not a push of an NTF router, AgentError without
        an endpoint.
        """
        return (await self._opened(body))[1]

    async def _opened(self, body: bytes) -> tuple[EndpointSecret, Push]:
        endpoints = await self._store.endpoint_secrets()
        if not endpoints:
            raise AgentError("there is no Web Push endpoint that this push could have come to")
        faults: list[BadBox] = []
        for endpoint in endpoints:
            try:
                content = WebPushSecret(endpoint.secret).open(body)
            except BadBox as fault:
                faults.append(fault)
            else:
                return endpoint, parse_web_push_content(content)
        raise faults[0]

    async def _woken_by(self, push: Push) -> WakeResult:
        match push:
            case VerificationPush():
                return TokenVerified(await self._tokens.verify(push))
            case CheckMessagesPush():
                return await self._everything()
            case MessagePush():
                return await self._notified(push)
            case _:
                assert_never(push)

    async def _everything(self) -> Woken:
        names = [connection.connection_id for connection in await self._store.connections()]
        queues = await self._store.primary_queues(names)
        return Woken(tuple(ToFetch(queue.connection_id, queue.number) for queue in queues))

    async def _notified(self, push: MessagePush) -> Woken:
        token = await self._store.token()
        # The token need not be active: a push may come while its new device token is being verified.
        if token is None or token.secret is None:
            raise AgentError("there is no token that this push could be for")
        items = open_notifications(box_key(token.secret), push)
        named = [item.queue for item in items if isinstance(item, PushedNotification)]
        return choose_queues(items, await self._store.notified_queues(named))

    async def fetch(self, items: Sequence[ToFetch]) -> list[Fetched]:
        """Fetch and acknowledge all messages of these queues, a few queues at a time. Returns a result for each."""
        limit = asyncio.Semaphore(self._at_once)

        async def one(item: ToFetch) -> Fetched:
            async with limit:
                return await self._fetch(item)

        return list(await asyncio.gather(*(one(item) for item in items)))

    async def _fetch(self, item: ToFetch) -> Fetched:
        queues = await self._store.receive_queues(item.connection_id)
        queue = next((each for each in queues if each.number == item.number), None)
        if queue is None:
            return Fetched(item, failure=AgentError("the connection or its queue is gone"))
        if self._listener.is_active(queue):
            return Fetched(
                item, failure=AgentError("the connection is subscribed: its messages come as events")
            )
        connection = await self._store.connection(item.connection_id)
        minimum = MinimumPriority.ALL if connection is None else connection.wanted
        messages: list[MessageEvent] = []
        end = await self._receiver.fetch(queue, messages.append)
        if not end.tells_priorities:
            minimum = min(minimum, MinimumPriority.ALL)  # which ones are mentions is not known
        if end.failure is None and not messages and item.meta is not None:
            await self._store.message_received(item.connection_id, item.number, item.meta.sent_at)
        return Fetched(item, tuple(messages), end.failure, minimum)
