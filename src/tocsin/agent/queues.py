"""Queues at SMP routers, as their recipient and as their sender."""

from __future__ import annotations

import os

from tocsin.agent.decisions.error_kinds import ErrorKind, error_kind
from tocsin.agent.router_clients import Purpose, RouterClients
from tocsin.agent.surroundings import new_dh_key, new_key
from tocsin.clients import RouterRefused
from tocsin.crypto.boxes import NONCE_BYTES
from tocsin.crypto.keys import X25519PrivateKey, X25519PublicKey, auth_key_from_der, private_key_from_der
from tocsin.errors import TocsinError
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.agent.agent_messages import AgentMessage, encode_agent_message
from tocsin.protocol.agent.queue_envelopes import CLIENT_VERSION, seal_for_queue
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.router_answers import Done
from tocsin.protocol.smp.queue_modes import NotifierKeys, QueueMode, QueueRequest, SubscriptionMode
from tocsin.protocol.smp.queue_uris import QueueUri
from tocsin.protocol.smp.recipient_commands import CreateQueue, SecureQueue
from tocsin.protocol.smp.sender_commands import SecureQueueBySender
from tocsin.protocol.smp.versions import NEW_NOTIFIER_CREDS_VERSION, SENDER_AUTH_KEY_VERSION
from tocsin.stores.agent_records import QueueNotifier, ReceiveQueue, SendQueue
from tocsin.wire.versions import VersionRange


class Queues:
    """Everything raises TransportError, HandshakeRefused or ClientError if the router cannot be asked or refuses."""

    def __init__(self, clients: RouterClients) -> None:
        self._clients = clients

    async def create(
        self, connection_id: str, number: int, router: RouterAddress, *, notifier: bool, primary: bool
    ) -> ReceiveQueue:
        """NEW; with the credentials of a notifier if they are wanted and the router makes them (v17, ntf.md 6.9)."""
        key, dh_key, peer_key = new_key(), new_dh_key(), new_dh_key()
        notifier_key, notifier_dh_key = new_key(), new_dh_key()
        async with self._clients.smp(router.location) as lease:
            wanted = notifier and lease.client.session.version >= NEW_NOTIFIER_CREDS_VERSION
            created = await lease.client.create_queue(
                CreateQueue(
                    key.public,
                    dh_key.public,
                    None if router.password is None else router.password.encode(),
                    SubscriptionMode.CREATE_ONLY,
                    QueueRequest(QueueMode.MESSAGING),
                    NotifierKeys(notifier_key.public, notifier_dh_key.public) if wanted else None,
                ),
                key,
            )
        made = None
        if wanted and created.notifier is not None:
            secret = notifier_dh_key.agree(created.notifier.dh_key)
            made = QueueNotifier(created.notifier.notifier_id, notifier_key.der, secret)
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

    async def secure(self, queue: ReceiveQueue, sender_key: bytes) -> None:
        """KEY"""
        async with self._clients.smp(queue.router) as lease:
            command = SecureQueue(auth_key_from_der(sender_key))
            await lease.client.ask(Done, command, queue.recipient_id, private_key_from_der(queue.key))

    async def delete(self, queue: ReceiveQueue) -> None:
        """DEL; a queue that is gone already is deleted."""
        try:
            async with self._clients.smp(queue.router) as lease:
                await lease.client.delete_queue(queue.recipient_id, private_key_from_der(queue.key))
        except TocsinError as error:
            if error_kind(error) is not ErrorKind.AUTH:
                raise

    async def secure_as_sender(self, queue: SendQueue) -> bool:
        """SKEY, if the router knows it; says whether the queue is secured now."""
        key = private_key_from_der(queue.key)
        async with self._clients.smp(queue.router, Purpose.COMMANDS) as lease:
            if lease.client.session.version < SENDER_AUTH_KEY_VERSION:
                return False
            try:
                await lease.client.ask(Done, SecureQueueBySender(key.public), queue.sender_id, key)
            except RouterRefused as refused:
                if refused.error is not ErrorCode.AUTH:
                    raise
                return False  # a queue whose recipient wants to do it
        return True

    async def send(
        self, queue: SendQueue, message: AgentMessage, *, notify: bool, authorized: bool = True
    ) -> None:
        """SEND, encrypted for the recipient of the queue."""
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
            )


def queue_uri(queue: ReceiveQueue) -> QueueUri:
    """What a sender needs."""
    return QueueUri(
        queue.router,
        queue.sender_id,
        VersionRange(CLIENT_VERSION, CLIENT_VERSION),
        X25519PrivateKey(queue.peer_key).public,
        QueueMode.MESSAGING,
    )


def send_queue(connection_id: str, number: int, uri: QueueUri) -> SendQueue:
    """The other side's queue, with a new key of ours."""
    return SendQueue(connection_id, number, uri.location, uri.sender_id, new_key().der, uri.dh_key.raw)
