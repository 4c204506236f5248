"""A client of an SMP router."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Self

from tocsin.clients.client_metrics import ClientMetrics, NoMetrics
from tocsin.clients.reconnecting import reconnecting
from tocsin.clients.requests import Answer, Event, Request
from tocsin.clients.router_client import RouterClient
from tocsin.clients.settings import ClientSettings
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.errors import LocalProtocolError
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.registration import NtfRouterCredentials
from tocsin.protocol.direct.smp_commands import (
    DeleteQueueProven,
    DisableNotificationsProven,
    RegisterNtfRouter,
    SendPacketAgain,
    SetMinimumPriority,
    SubscribeNotificationsAs,
    SubscribeNtfRouter,
)
from tocsin.protocol.direct.smp_responses import (
    NotificationsAcknowledged,
    NtfRouterRegistered,
    NtfRouterSubscribed,
    PacketStatus,
)
from tocsin.protocol.router_answers import Done
from tocsin.protocol.smp.notifier_commands import AcknowledgeNotifications, SubscribeServiceNotifications
from tocsin.protocol.smp.queue_modes import NotifierIds, NotifierKeys
from tocsin.protocol.smp.recipient_commands import (
    AcknowledgeMessage,
    CreateQueue,
    EnableNotifications,
    GetMessage,
    Subscribe,
    SubscribeService,
)
from tocsin.protocol.smp.responses import (
    MessageReceived,
    NotificationsEnabled,
    QueueCreated,
    ServiceSubscribed,
    Subscribed,
)
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.protocol.smp.service_subscriptions import NO_IDS_HASH, UNKNOWN_COUNT
from tocsin.transport.client_sessions import ServiceIdentity, dial_smp


class SmpClient(RouterClient):
    """One session with an SMP router: `async with SmpClient.connect("smp://…") as client`.

    Commands without a method here go through `request`, `ask` or `request_all`.
    """

    @classmethod
    def connect(
        cls,
        address: str | RouterAddress,
        settings: ClientSettings | None = None,
        *,
        service: ServiceIdentity | None = None,
        metrics: ClientMetrics | None = None,
    ) -> AbstractAsyncContextManager[Self]:
        """Entering raises DecodeError for a bad address, ConnectFailed, PeerIdentityMismatch, HandshakeRefused,

        HandshakeTimeout or ConnectionLost. With `service` the session is one of that service (v16+).
        """
        where = RouterAddress.of(address, Scheme.SMP)
        settings = settings or ClientSettings()
        return cls._connected(
            lambda: dial_smp(where, settings.dial, service), where.name, settings, metrics or NoMetrics()
        )

    @classmethod
    def sessions(
        cls,
        address: str | RouterAddress,
        settings: ClientSettings | None = None,
        *,
        service: ServiceIdentity | None = None,
        metrics: ClientMetrics | None = None,
    ) -> AsyncGenerator[Self, None]:
        """Yield a client, and the next one when it is lost and the loop continues; see `reconnecting`."""
        where = RouterAddress.of(address, Scheme.SMP)
        settings = settings or ClientSettings()
        return reconnecting(
            lambda: cls.connect(where, settings, service=service, metrics=metrics), settings.backoff
        )

    async def create_queue(self, command: CreateQueue, key: AuthPrivateKey) -> QueueCreated:
        """NEW. `key` is the private half of the command's `auth_key`."""
        self.probe_when_silent()
        return await self.ask(QueueCreated, command, key=key)

    async def subscribe(self, recipient_id: bytes, key: AuthPrivateKey) -> None:
        """SUB. All messages come as events, even the first one, with which old routers answer the command."""
        self.probe_when_silent()
        answer = await self.ask((Subscribed, Done, MessageReceived), Subscribe(), recipient_id, key)
        if isinstance(answer, MessageReceived):
            await self._events.put([Event(recipient_id, answer)])

    async def get_message(self, recipient_id: bytes, key: AuthPrivateKey) -> MessageReceived | None:
        """GET: the head message, if there is one; the same again until it is acknowledged."""
        return _message(await self.ask((MessageReceived, Done), GetMessage(), recipient_id, key))

    async def acknowledge(
        self, recipient_id: bytes, message_id: bytes, key: AuthPrivateKey
    ) -> MessageReceived | None:
        """ACK: deletes the message; the answer may bring the next one."""
        return _message(
            await self.ask((MessageReceived, Done), AcknowledgeMessage(message_id), recipient_id, key)
        )

    async def send_message(
        self,
        sender_id: bytes,
        body: bytes,
        *,
        notify: bool,
        key: AuthPrivateKey | None = None,
        priority: int = 1,
    ) -> None:
        """SEND; with a key once the queue is secured. A priority above 1 marks important messages, such as mentions."""
        flags = MessageFlags.of_priority(priority if notify else 0)
        await self.ask(Done, SendMessage(flags, body), sender_id, key)

    async def enable_notifications(
        self, recipient_id: bytes, notifier: NotifierKeys, key: AuthPrivateKey
    ) -> NotifierIds:
        """NKEY"""
        return (
            await self.ask(NotificationsEnabled, EnableNotifications(notifier), recipient_id, key)
        ).notifier

    async def disable_notifications(
        self, recipient_id: bytes, key: AuthPrivateKey, packet: bytes | None = None
    ) -> None:
        """NDEL; a packet only in a direct session."""
        await self.ask(Done, DisableNotificationsProven(packet), recipient_id, key)

    async def delete_queue(
        self, recipient_id: bytes, key: AuthPrivateKey, packet: bytes | None = None
    ) -> None:
        """DEL; a packet only in a direct session."""
        await self.ask(Done, DeleteQueueProven(packet), recipient_id, key)

    async def send_packet_again(
        self, recipient_id: bytes, key: AuthPrivateKey, packet: bytes | None = None
    ) -> PacketFate:
        """NPKT; without a packet it asks for the fate of the last one."""
        return (await self.ask(PacketStatus, SendPacketAgain(packet), recipient_id, key)).fate

    async def set_minimum_priority(
        self, recipient_id: bytes, minimum: MinimumPriority, key: AuthPrivateKey
    ) -> None:
        """NPRI"""
        await self.ask(Done, SetMinimumPriority(minimum), recipient_id, key)

    async def register_ntf_router(self, credentials: NtfRouterCredentials, key: AuthPrivateKey) -> bytes:
        """NSRV; our id at this router. `key` is the private half of the credentials' `auth_key`."""
        return (await self.ask(NtfRouterRegistered, RegisterNtfRouter(credentials), key=key)).ntf_router_id

    async def subscribe_ntf_router(
        self,
        ntf_router_id: bytes,
        key: AuthPrivateKey,
        count: int = UNKNOWN_COUNT,
        ids_hash: bytes = NO_IDS_HASH,
    ) -> NtfRouterSubscribed:
        """NSSUB: all queues of this NTF router. The parameters are the caller's own count and hash."""
        self.probe_when_silent()
        return await self.ask(NtfRouterSubscribed, SubscribeNtfRouter(count, ids_hash), ntf_router_id, key)

    async def acknowledge_notifications(self, count: int) -> None:
        """NRCV: the first `count` notifications of this session are stored. Only in a direct session."""
        await self.ask(NotificationsAcknowledged, AcknowledgeNotifications(count))

    def subscribe_notifications(
        self, notifiers: Iterable[tuple[bytes, AuthPrivateKey]], ntf_router_id: bytes | None = None
    ) -> AsyncGenerator[Answer, None]:
        """NSUB for any number of (notifier id, key), in full blocks; see `request_all`.

        With our id, in a direct session, they are associated with us.
        """
        self.probe_when_silent()
        command = SubscribeNotificationsAs(ntf_router_id)
        return self.request_all(Request(command, notifier_id, key) for notifier_id, key in notifiers)

    async def subscribe_service_notifications(self) -> int:
        """NSUBS: all queues associated with this service. Returns how many the router has."""
        if self.session.service is None:
            raise LocalProtocolError("NSUBS needs a session with service certificates")
        self.probe_when_silent()
        command = SubscribeServiceNotifications()
        return (await self.ask(ServiceSubscribed, command, self.session.service.service_id)).count

    async def subscribe_service(
        self, count: int = UNKNOWN_COUNT, ids_hash: bytes = NO_IDS_HASH
    ) -> ServiceSubscribed:
        """SUBS: all queues of this service. Waiting messages come as events, and after them `AllDelivered` (v19).

        The parameters are the caller's own count and hash; the answer has the router's.
        """
        if self.session.service is None:
            raise LocalProtocolError("SUBS needs a session with service certificates")
        self.probe_when_silent()
        command = SubscribeService(count, ids_hash)
        return await self.ask(ServiceSubscribed, command, self.session.service.service_id)


def _message(response: MessageReceived | Done) -> MessageReceived | None:
    return response if isinstance(response, MessageReceived) else None
