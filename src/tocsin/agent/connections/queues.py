"""Requests about queues at SMP routers, as their recipient and as their sender."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from tocsin.agent.runtime.error_kinds import ErrorKind, error_kind
from tocsin.agent.runtime.randomness import chance, new_dh_key, new_key
from tocsin.agent.runtime.router_clients import Purpose, RouterClients
from tocsin.agent.store.interface import TokenRecords
from tocsin.agent.store.records import AgentToken, QueueNotifier, ReceiveQueue, SendQueue
from tocsin.agent.subscriptions.notifiers import (
    DirectNotifierRequest,
    KeyedNotifierRequest,
    NotifierRequest,
)
from tocsin.agent.subscriptions.packets import Packets
from tocsin.clients import RouterRefused, SmpClient
from tocsin.crypto.boxes import NONCE_BYTES
from tocsin.crypto.keys import (
    Ed25519PrivateKey,
    X25519PrivateKey,
    X25519PublicKey,
    auth_key_from_der,
    private_key_from_der,
)
from tocsin.errors import AgentError, TocsinError
from tocsin.operate.clock import WaitingClock
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.agent.agent_messages import AgentMessage, encode_agent_message
from tocsin.protocol.agent.queue_envelopes import CLIENT_VERSION, seal_for_queue
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.smp_commands import CreateNotifyingQueue
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.router_answers import Done
from tocsin.protocol.smp.queue_modes import QueueMode, QueueRequest, SubscriptionMode
from tocsin.protocol.smp.queue_uris import QueueUri
from tocsin.protocol.smp.recipient_commands import CreateQueue, SecureQueue
from tocsin.protocol.smp.responses import QueueCreated
from tocsin.protocol.smp.sender_commands import SecureQueueBySender
from tocsin.protocol.smp.versions import NEW_NOTIFIER_CREDS_VERSION, SENDER_AUTH_KEY_VERSION
from tocsin.wire.versions import VersionRange


class QueueRequests:
    """Everything raises TransportError, HandshakeRefused or ClientError if the router cannot be asked or refuses."""

    def __init__(
        self,
        store: TokenRecords,
        clients: RouterClients,
        clock: WaitingClock,
        routers: Sequence[RouterAddress],
    ) -> None:
        self._store = store
        self._clients = clients
        self._clock = clock
        self._routers = routers

    async def create(
        self,
        connection_id: str,
        number: int,
        router: RouterAddress | None,
        *,
        notify: AgentToken | None,
        primary: bool,
    ) -> ReceiveQueue:
        """Send NEW, to a random router if none is given. Raises AgentError if no router is configured.

        With a token to notify, the router also creates a notifier if it can (v17, ntf.md 6.9). A direct one comes with
        a packet, whose fate is not known yet.
        """
        router = router or self._chosen_router()
        key, dh_key, peer_key = new_key(), new_dh_key(), new_dh_key()
        password = None if router.password is None else router.password.encode()
        plain = CreateQueue(
            key.public,
            dh_key.public,
            password,
            SubscriptionMode.CREATE_ONLY,
            QueueRequest(QueueMode.MESSAGING),
        )
        async with self._clients.smp(router.location) as lease:
            wanted = self._notifier_request(lease.client, router, notify)
            try:
                created = await _created(lease.client, plain, wanted, key)
            except RouterRefused as refused:
                if not isinstance(wanted, DirectNotifierRequest) or refused.error is not ErrorCode.QUOTA:
                    raise
                wanted = None  # too many packets wait at the router: a worker creates the notifier later
                created = await _created(lease.client, plain, wanted, key)
        made: QueueNotifier | TocsinError | None = None
        if wanted is not None and created.notifier is not None:
            made = wanted.notifier(created.notifier.notifier_id, created.notifier.dh_key)
        if isinstance(made, TocsinError):
            raise made
        return ReceiveQueue(
            connection_id,
            number,
            router.location,
            created.recipient_id,
            key.der,
            dh_key.agree(created.dh_key),
            created.sender_id,
            peer_key.raw,
            notifier=made,
            primary=primary,
        )

    def _chosen_router(self) -> RouterAddress:
        if not self._routers:
            raise AgentError("no SMP router is configured")
        return self._routers[int(chance() * len(self._routers)) % len(self._routers)]

    def _notifier_request(
        self, client: SmpClient, router: RouterAddress, notify: AgentToken | None
    ) -> NotifierRequest | None:
        if notify is None or client.session.version < NEW_NOTIFIER_CREDS_VERSION:
            return None
        packets = Packets.of(notify) if client.direct else None
        if packets is None:
            return KeyedNotifierRequest()
        if packets.offer.expires_at <= self._clock.exactly():
            return None  # a worker fetches another key and creates a notifier
        return (
            DirectNotifierRequest.sealed(packets, router.location, MinimumPriority.ALL)
            or KeyedNotifierRequest()
        )

    async def secure(self, queue: ReceiveQueue, sender_key: bytes) -> None:
        """Send KEY."""
        async with self._clients.smp(queue.router) as lease:
            command = SecureQueue(auth_key_from_der(sender_key))
            await lease.client.ask(Done, command, queue.recipient_id, private_key_from_der(queue.key))

    async def delete(self, queue: ReceiveQueue) -> None:
        """Send DEL, with a proof for the NTF router if it has the notifier by a packet.

        A queue that is already gone counts as deleted.
        """
        notifier = queue.notifier if queue.notifier is not None and queue.notifier.direct else None
        packets = None if notifier is None else Packets.at(await self._store.token(), self._clock.exactly())
        try:
            async with self._clients.smp(queue.router) as lease:
                packet = None
                if notifier is not None and packets is not None and lease.client.direct:
                    packet = packets.dissociate(queue.router, notifier.notifier_id)
                key = private_key_from_der(queue.key)
                await lease.client.delete_queue(queue.recipient_id, key, packet)
        except TocsinError as error:
            if error_kind(error) is not ErrorKind.AUTH:
                raise

    async def secure_as_sender(self, queue: SendQueue) -> bool:
        """Send SKEY, if the router supports it. Returns whether the queue is now secured."""
        key = private_key_from_der(queue.key)
        async with self._clients.smp(queue.router, Purpose.COMMANDS) as lease:
            if lease.client.session.version < SENDER_AUTH_KEY_VERSION:
                return False
            try:
                await lease.client.ask(Done, SecureQueueBySender(key.public), queue.sender_id, key)
            except RouterRefused as refused:
                if refused.error is not ErrorCode.AUTH:
                    raise
                return False  # the recipient wants to secure this queue
        return True

    async def send(
        self,
        queue: SendQueue,
        message: AgentMessage,
        *,
        notify: bool,
        authorized: bool = True,
        priority: int = 1,
    ) -> None:
        """Send SEND, encrypted for the recipient of the queue."""
        recipient = X25519PublicKey(queue.peer_key)
        envelope = seal_for_queue(
            encode_agent_message(message), recipient, new_dh_key(), os.urandom(NONCE_BYTES)
        )
        async with self._clients.smp(queue.router, Purpose.COMMANDS) as lease:
            await lease.client.send_message(
                queue.sender_id,
                envelope,
                notify=notify,
                key=private_key_from_der(queue.key) if authorized else None,
                priority=priority,
            )


async def _created(
    client: SmpClient, plain: CreateQueue, wanted: NotifierRequest | None, key: Ed25519PrivateKey
) -> QueueCreated:
    match wanted:
        case None:
            return await client.create_queue(plain, key)
        case KeyedNotifierRequest():
            return await client.create_queue(replace(plain, notifier=wanted.keys), key)
        case DirectNotifierRequest():
            client.probe_when_silent()
            command = CreateNotifyingQueue(
                plain.auth_key,
                plain.dh_key,
                plain.password,
                plain.subscription,
                plain.request,
                direct=wanted.subscription,
            )
            return await client.ask(QueueCreated, command, key=key, corr_id=wanted.corr_id)


def queue_uri(queue: ReceiveQueue) -> QueueUri:
    """Return what a sender needs to use the queue."""
    return QueueUri(
        queue.router,
        queue.sender_id,
        VersionRange(CLIENT_VERSION, CLIENT_VERSION),
        X25519PrivateKey(queue.peer_key).public,
        QueueMode.MESSAGING,
    )


def send_queue(connection_id: str, number: int, uri: QueueUri) -> SendQueue:
    """Make a record of the other side's queue, with a new key of ours."""
    return SendQueue(connection_id, number, uri.location, uri.sender_id, new_key().der, uri.dh_key.raw)
