"""A push has come: what it is about, what to fetch, and the fetching (ntf.md 6.11, behaviours D1, D7)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, assert_never

from tocsin.agent.connections.fetching import Fetching
from tocsin.agent.connections.listener import Listening
from tocsin.agent.runtime.events import MessageEvent
from tocsin.agent.runtime.parts import AgentParts
from tocsin.agent.store.records import EndpointSecret, NotifiedQueue
from tocsin.agent.token.registrar import Tokens
from tocsin.agent.token.registration import is_active
from tocsin.crypto.boxes import box_key
from tocsin.crypto.web_push import WebPushSecret
from tocsin.errors import AgentError, BadBox, CryptoError, DecodeError, RemoteProtocolError, TocsinError
from tocsin.protocol.agent.push_contents import open_notifications
from tocsin.protocol.ntf.pushes import (
    CheckMessagesPush,
    MessagePush,
    Push,
    PushedNotification,
    VerificationPush,
    parse_push_json,
)
from tocsin.protocol.ntf.statuses import TokenStatus
from tocsin.protocol.ntf.web_push_contents import parse_web_push_content
from tocsin.protocol.smp.delivered_messages import NotificationMeta, unseal_meta


class Unreadable(Enum):
    """Why an item of a push leads nowhere."""

    SYNTAX = "it is not a notification"
    UNKNOWN_QUEUE = "no connection has this queue"
    METADATA = "its metadata cannot be decrypted"


@dataclass(frozen=True, slots=True)
class UnreadableItem:
    position: int
    """From 0, oldest first."""
    reason: Unreadable
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ToFetch:
    """A queue that has a message, as far as the push tells."""

    connection_id: str
    number: int
    notified_at: int | None = None
    """When the NTF router heard of it, seconds since 1970."""
    meta: NotificationMeta | None = None
    """Which message, if that can be read."""


@dataclass(frozen=True, slots=True)
class TokenVerified:
    """The push carried a code; this is what became of the token."""

    status: TokenStatus


@dataclass(frozen=True, slots=True)
class Woken:
    to_fetch: tuple[ToFetch, ...]
    unreadable: tuple[UnreadableItem, ...] = ()
    already_received: int = 0
    """Items about messages that this agent has had."""


WakeResult: TypeAlias = TokenVerified | Woken


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came of one queue."""

    item: ToFetch
    messages: tuple[MessageEvent, ...] = ()
    """To be settled by the app (`Agent.settled`)."""
    failure: TocsinError | None = None
    """Why there may be more."""


class Waking:
    def __init__(self, parts: AgentParts, tokens: Tokens, fetching: Fetching, listening: Listening) -> None:
        self._store = parts.store
        self._at_once = parts.settings.fetch_at_once
        self._tokens = tokens
        self._fetching = fetching
        self._listening = listening

    async def wake(self, payload: bytes) -> WakeResult:
        """What to do about a push, by its JSON.

        Raises DecodeError for what is no push, BadBox for one of another token or altered on its way, AgentError
        without an active token; and for a verification what `Tokens.verify` raises.
        """
        return await self._woken_by(parse_push_json(payload))

    async def wake_by_web_push(self, body: bytes) -> WakeResult:
        """`wake` by the body of a Web Push. Raises also what `open_web_push` raises."""
        endpoint, push = await self._opened(body)
        if isinstance(push, VerificationPush):
            token = await self._tokens.current()
            # Its code is that of a former registration: the router would refuse it, and the token be made anew.
            if token.device_token != endpoint.device_token:
                raise AgentError("the verification came to a former Web Push endpoint of the token")
        return await self._woken_by(push)

    async def open_web_push(self, body: bytes) -> Push:
        """What the body of a Web Push carries, whichever of the last endpoints it came to.

        Raises BadBox if it is for none of them, DecodeError if it is no push of an NTF router, AgentError without
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
        if token is None or token.secret is None or not is_active(token):
            raise AgentError("there is no active token that this push could be for")
        items = open_notifications(box_key(token.secret), push)
        named = [item.queue for item in items if isinstance(item, PushedNotification)]
        queues = iter(await self._store.notified_queues(named))
        to_fetch: dict[tuple[str, int], ToFetch] = {}
        unreadable: list[UnreadableItem] = []
        already = 0
        for position, item in enumerate(items):
            if isinstance(item, DecodeError):
                unreadable.append(UnreadableItem(position, Unreadable.SYNTAX, str(item)))
                continue
            queue = next(queues)
            if queue is None:
                unreadable.append(UnreadableItem(position, Unreadable.UNKNOWN_QUEUE))
                continue
            opened = _meta(queue, item)
            meta = opened if isinstance(opened, NotificationMeta) else None
            if isinstance(opened, TocsinError):
                unreadable.append(UnreadableItem(position, Unreadable.METADATA, str(opened)))
            is_last = position == len(items) - 1
            if is_last or (meta is not None and _is_news(queue, meta)):
                name = (queue.connection_id, queue.number)
                to_fetch[name] = ToFetch(*name, item.received_at, meta)
            elif meta is not None:
                already += 1
        return Woken(tuple(to_fetch.values()), tuple(unreadable), already)

    async def fetch(self, items: Sequence[ToFetch]) -> list[Fetched]:
        """All messages of these queues, acknowledged, over a few connections at a time; one result for each."""
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
        if self._listening.is_active(queue):
            return Fetched(
                item, failure=AgentError("the connection is subscribed: its messages come as events")
            )
        messages: list[MessageEvent] = []
        try:
            await self._fetching.fetch(queue, messages.append)
        except TocsinError as error:
            return Fetched(item, tuple(messages), error)
        if not messages and item.meta is not None:
            await self._store.message_received(item.connection_id, item.number, item.meta.sent_at)
        return Fetched(item, tuple(messages))


def _is_news(queue: NotifiedQueue, meta: NotificationMeta) -> bool:
    """Times are whole seconds, so a second message of the same second is not; it is fetched with the first."""
    return queue.last_message_at is None or meta.sent_at > queue.last_message_at


def _meta(queue: NotifiedQueue, item: PushedNotification) -> NotificationMeta | TocsinError:
    try:
        return unseal_meta(box_key(queue.secret), item.nonce, item.sealed_meta)
    except (CryptoError, RemoteProtocolError) as error:
        return error
