"""The interface of the agent's store. Every method is one transaction, on disk when it returns.

The rows of subscriptions are the queues of the agent's workers: an action is written before it is executed and
replaced when it is done, so a crash at any point repeats at most one action. Every method raises `StoreError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tocsin.agent.store.records import (
    AgentConnection,
    AgentSubscription,
    AgentToken,
    EndpointSecret,
    KeptMessage,
    NotifiedQueue,
    PriorityChange,
    ReceiveQueue,
    SendQueue,
    TokenToDelete,
)
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.ntf.subscription_commands import NotifierQueue


class ConnectionStore(Protocol):
    async def add_connection(
        self,
        connection: AgentConnection,
        receive: ReceiveQueue | None,
        send: SendQueue | None,
        subscription: AgentSubscription | None = None,
    ) -> None:
        """Add a connection with its first queues and its notification subscription."""

    async def connection(self, connection_id: str) -> AgentConnection | None: ...

    async def connections(self) -> list[AgentConnection]: ...

    async def unfinished_connections(self) -> list[str]:
        """Return ids of connections with a send queue that is not secured, or a receive queue that is not primary.

        Connections that were left belong to them.
        """

    async def leave_connection(self, connection_id: str) -> None:
        """Delete a connection for the app, and keep its queues, to delete them at their routers.

        `connection` and `connections` leave it out; it is unfinished until `delete_connection`.
        """

    async def delete_connection(self, connection_id: str) -> None:
        """Delete a connection with its queues and its notification subscription."""

    async def set_notifications(
        self, connection_id: str, enabled: bool, minimum: MinimumPriority = MinimumPriority.ALL
    ) -> bool:
        """Return whether anything changed."""

    async def add_receive_queue(self, queue: ReceiveQueue) -> None:
        """Add a queue, which the caller has numbered. A primary one replaces the present primary queue."""

    async def set_primary(self, connection_id: str, number: int) -> None:
        """Make this queue the only primary one of its connection."""

    async def receive_queues(self, connection_id: str) -> list[ReceiveQueue]:
        """Return the connection's queues, the primary one first."""

    async def primary_queues(self, connection_ids: Sequence[str]) -> list[ReceiveQueue]:
        """Return the primary queues of those connections that have one."""

    async def notified_queues(self, queues: Sequence[NotifierQueue]) -> list[NotifiedQueue | None]:
        """Find a queue for each by hosts, port and notifier id. The key hash is not compared (ntf.md 6.11)."""

    async def secure_queue(self, connection_id: str, number: int, sender_key: bytes) -> None: ...

    async def clear_notifiers(self, connection_ids: Sequence[str]) -> None: ...

    async def message_received(
        self, connection_id: str, number: int, sent_at: int, message_id: bytes | None = None
    ) -> None:
        """Raise the time of the last message, never lower it. An id becomes that of the last message."""

    async def delete_receive_queue(self, connection_id: str, number: int) -> None: ...

    async def add_send_queue(self, queue: SendQueue) -> None: ...

    async def send_queues(self, connection_id: str) -> list[SendQueue]: ...

    async def update_send_queue(self, queue: SendQueue) -> None: ...

    async def delete_send_queue(self, connection_id: str, number: int) -> None: ...


class PriorityRecords(Protocol):
    """Primary queues whose notifiers have another minimum priority at their SMP routers than their connections want.

    The store keeps this up to date whenever one of the two changes.
    """

    async def routers_with_priority_changes(self) -> list[RouterLocation]: ...

    async def priority_changes(self, router: RouterLocation) -> list[PriorityChange]:
        """Return the changes for queues at this SMP router."""

    async def priorities_set(self, changes: Sequence[PriorityChange]) -> None:
        """Record that the SMP router made these changes. Notifiers that were replaced meanwhile stay as they are."""


class MessageRecords(Protocol):
    """Messages that the app has not settled. They are deleted with their connection."""

    async def keep_message(self, message: KeptMessage) -> KeptMessage | None:
        """Keep a message, return it with its number, and make it its queue's last one, as `message_received` does.

        A message that already was its queue's last one is not kept again. Returns None if the app settled it, or if its
        queue is gone.
        """

    async def kept_messages(self) -> list[KeptMessage]:
        """Return all messages in order of arrival."""

    async def forget_messages(self, numbers: Sequence[int]) -> None:
        """Delete messages that the app has settled."""


class TokenRecords(Protocol):
    """The token, if there is one, and former tokens that the agent has to delete at their routers."""

    async def token(self) -> AgentToken | None: ...

    async def save_token(self, token: AgentToken) -> None:
        """Save the token in place of the present one."""

    async def remove_token(self, *, delete_at_router: bool, now: int) -> TokenToDelete | None:
        """Remove the token. With `delete_at_router` and a token id, note in the same transaction to delete it there."""

    async def tokens_to_delete(self) -> list[TokenToDelete]:
        """Return former tokens, oldest first."""

    async def token_deleted(self, number: int) -> None: ...

    async def forget_tokens_to_delete(self, before: int) -> int: ...


class EndpointRecords(Protocol):
    """Secrets of Web Push endpoints: the one in use, and former ones whose pushes may come late."""

    async def keep_endpoint_secret(self, kept: EndpointSecret, most: int) -> None:
        """Keep a secret as the newest, in place of one for the same device token. Only `most` and the token's stay."""

    async def endpoint_secrets(self) -> list[EndpointSecret]:
        """Return all secrets, newest first."""

    async def forget_endpoint_secrets(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Completion:
    """The result of an action that a worker has finished."""

    done: AgentSubscription
    """The row as the worker read it."""
    then: AgentSubscription | None
    """The next row; None deletes it."""
    queue: ReceiveQueue | None = None
    """The queue with its new notifier, if it has a new one."""


class SubscriptionRecords(Protocol):
    async def subscription(self, connection_id: str) -> AgentSubscription | None: ...

    async def subscriptions(self, connection_ids: Sequence[str] | None = None) -> list[AgentSubscription]:
        """Return all rows, or those of these connections."""

    async def put_subscriptions(self, wanted: Sequence[AgentSubscription]) -> list[AgentSubscription]:
        """Replace rows, giving them their next versions, and return them. The supervisor's decisions take precedence.

        Connections that are gone are left out.
        """

    async def due_actions(
        self, router: RouterLocation, *, at_smp_router: bool, now: float, limit: int
    ) -> list[AgentSubscription]:
        """Return due rows, oldest first. The same rows come back until they are completed.

        CHECK and ASK_FATE wait for their time; all other actions are due at once.
        """

    async def next_due_at(self, router: RouterLocation, *, at_smp_router: bool) -> float | None:
        """Return when the next action at this router is due; None if there is no action."""

    async def routers_with_actions(self, *, at_smp_router: bool) -> list[RouterLocation]: ...

    async def complete(self, completions: Sequence[Completion]) -> list[bool]:
        """Write all results in one transaction, with the new notifiers of queues.

        If the supervisor replaced a row meanwhile, its action stays, and only the ids, phase and status that the action
        changed are written; a row that should be deleted stays without ids. Returns False for these rows, and for rows
        that are gone (ntf.md 6.5).
        """


class AgentStore(
    ConnectionStore,
    PriorityRecords,
    MessageRecords,
    TokenRecords,
    EndpointRecords,
    SubscriptionRecords,
    Protocol,
):
    async def change_passphrase(self, passphrase: str | None) -> None:
        """Set, change or, with None, remove the passphrase. Atomic: after a crash, one of the two opens the store."""

    async def close(self) -> None: ...
