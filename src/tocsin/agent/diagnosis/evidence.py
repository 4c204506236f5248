"""Evidence about one connection's notifications, from the store and from both routers.

Gathering it changes nothing: TCHK, SCHK, QUE, NPKT without a packet, and PING only read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from tocsin.agent.runtime.settings import AgentSettings
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.records import AgentConnection, AgentSubscription, AgentToken, ReceiveQueue
from tocsin.clients import NtfClient, SmpClient
from tocsin.crypto.keys import AuthPrivateKey, private_key_from_der
from tocsin.errors import AgentError, TocsinError
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.ntf.statuses import SubscriptionStatus, TokenStatus
from tocsin.protocol.smp.queue_information import QueueInformation
from tocsin.protocol.smp.recipient_commands import InspectQueue
from tocsin.protocol.smp.responses import QueueInspected

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reached:
    """A router that answered."""

    connect_seconds: float
    """Time to open a session, including TLS and hellos."""
    ping_seconds: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """An error in place of an answer says why the answer is missing. None: there was nothing to ask about."""

    now: float
    connection: AgentConnection
    token: AgentToken | None
    queue: ReceiveQueue | None
    """The primary one."""
    row: AgentSubscription | None
    ntf_router: Reached | TocsinError | None = None
    token_status: TokenStatus | TocsinError | None = None
    """TCHK"""
    subscription_status: SubscriptionStatus | TocsinError | None = None
    """SCHK; only of a subscription of this token."""
    smp_router: Reached | TocsinError | None = None
    queue_information: QueueInformation | TocsinError | None = None
    """QUE"""
    packet_fate: PacketFate | TocsinError | None = None
    """NPKT; only of a direct notifier, in a direct session."""


@dataclass(frozen=True, slots=True)
class _AtNtfRouter:
    reached: Reached | TocsinError | None = None
    token: TokenStatus | TocsinError | None = None
    subscription: SubscriptionStatus | TocsinError | None = None


@dataclass(frozen=True, slots=True)
class _AtSmpRouter:
    reached: Reached | TocsinError | None = None
    queue: QueueInformation | TocsinError | None = None
    fate: PacketFate | TocsinError | None = None


async def gather(store: AgentStore, settings: AgentSettings, connection_id: str, *, now: float) -> Evidence:
    """Ask both routers at the same time, over separate connections. Raises AgentError or StoreError."""
    connection = await store.connection(connection_id)
    if connection is None:
        raise AgentError("there is no such connection")
    token, row = await store.token(), await store.subscription(connection_id)
    queue = next(iter(await store.primary_queues([connection_id])), None)
    at_ntf, at_smp = await asyncio.gather(_ask_ntf(settings, token, row), _ask_smp(settings, queue))
    return Evidence(
        now,
        connection,
        token,
        queue,
        row,
        at_ntf.reached,
        at_ntf.token,
        at_ntf.subscription,
        at_smp.reached,
        at_smp.queue,
        at_smp.fate,
    )


async def _ask_ntf(
    settings: AgentSettings, token: AgentToken | None, row: AgentSubscription | None
) -> _AtNtfRouter:
    if token is None:
        return _AtNtfRouter()
    key = private_key_from_der(token.key)
    began = time.perf_counter()
    try:
        async with NtfClient.connect(RouterAddress(Scheme.NTF, token.router), settings.dialling) as client:
            reached = await _reached(client, began)
            status: TokenStatus | TocsinError | None = None
            if token.token_id is not None:
                status = await _or_error(client.check_token(token.token_id, key))
            found: SubscriptionStatus | TocsinError | None = None
            asked = row is not None and is_of_token(row, token) and not row.direct
            if asked and row is not None and row.subscription_id is not None:
                found = await _or_error(client.check_subscription(row.subscription_id, key))
    except TocsinError as error:
        return _AtNtfRouter(error)
    return _AtNtfRouter(reached, status, found)


async def _ask_smp(settings: AgentSettings, queue: ReceiveQueue | None) -> _AtSmpRouter:
    if queue is None:
        return _AtSmpRouter()
    key = private_key_from_der(queue.key)
    began = time.perf_counter()
    try:
        async with SmpClient.connect(RouterAddress(Scheme.SMP, queue.router), settings.dialling) as client:
            reached = await _reached(client, began)
            found = await _or_error(_information(client, queue.recipient_id, key))
            fate: PacketFate | TocsinError | None = None
            if client.direct and queue.notifier is not None and queue.notifier.direct:
                fate = await _or_error(client.send_packet_again(queue.recipient_id, key))
            return _AtSmpRouter(reached, found, fate)
    except TocsinError as error:
        return _AtSmpRouter(error)


def is_of_token(row: AgentSubscription, token: AgentToken) -> bool:
    return row.ntf_router == token.router and row.token_id == token.token_id


async def _reached(client: NtfClient | SmpClient, began: float) -> Reached:
    connected = time.perf_counter()
    await client.ping()
    return Reached(connected - began, time.perf_counter() - connected)


async def _information(client: SmpClient, recipient_id: bytes, key: AuthPrivateKey) -> QueueInformation:
    inspected = await client.ask(QueueInspected, InspectQueue(), recipient_id, key)
    return QueueInformation.from_json(inspected.json)


async def _or_error(answer: Awaitable[T]) -> T | TocsinError:
    try:
        return await answer
    except TocsinError as error:
        return error
