"""What an agent needs of its store. Every method is one transaction, on disk when it returns.

The rows of subscriptions are the work queues of the agent's workers: an action is written before it is executed and
replaced when it is done, so a crash at any point repeats at most one action. Raises `StoreError`.
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
    QueueNotifier,
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
        """With its first queues and its notification subscription, in one transaction."""

    async def connection(self, connection_id: str) -> AgentConnection | None: ...

    async def connections(self) -> list[AgentConnection]: ...

    async def unsettled_connections(self) -> list[str]:
        """Those with a send queue that is not secured, or a receive queue that is not the primary one."""

    async def delete_connection(self, connection_id: str) -> None:
        """With its queues and its notification subscription."""

    async def set_notifications(
        self, connection_id: str, enabled: bool, minimum: MinimumPriority = MinimumPriority.ALL
    ) -> bool:
        """Whether it changed."""

    async def add_receive_queue(self, queue: ReceiveQueue) -> None:
        """Numbered behind the others by the caller; if it is primary the others are not any more."""

    async def set_primary(self, connection_id: str, number: int) -> None:
        """The others are not any more."""

    async def receive_queues(self, connection_id: str) -> list[ReceiveQueue]:
        """The primary one first."""

    async def primary_queues(self, connection_ids: Sequence[str]) -> list[ReceiveQueue]:
        """Of those connections that have one."""

    async def notified_queues(self, queues: Sequence[NotifierQueue]) -> list[NotifiedQueue | None]:
        """One for each, by hosts, port and notifier id; the key hash is not compared (ntf.md 6.11)."""

    async def secure_queue(self, connection_id: str, number: int, sender_key: bytes) -> None: ...

    async def set_notifier(self, connection_id: str, number: int, notifier: QueueNotifier | None) -> None: ...

    async def clear_notifiers(self, connection_ids: Sequence[str]) -> None: ...

    async def message_received(
        self, connection_id: str, number: int, sent_at: int, message_id: bytes | None = None
    ) -> None:
        """Raises the time of the last message; never lowers it. With an id, that was the last one."""

    async def delete_receive_queue(self, connection_id: str, number: int) -> None: ...

    async def add_send_queue(self, queue: SendQueue) -> None: ...

    async def send_queues(self, connection_id: str) -> list[SendQueue]: ...

    async def update_send_queue(self, queue: SendQueue) -> None: ...

    async def delete_send_queue(self, connection_id: str, number: int) -> None: ...


class PriorityRecords(Protocol):
    """Primary queues whose notifiers have another minimum at their SMP routers than their connections want.

    The store finds out by itself, whenever one of the two changes.
    """

    async def routers_with_priority_changes(self) -> list[RouterLocation]: ...

    async def priority_changes(self, router: RouterLocation) -> list[PriorityChange]:
        """Of the queues at this SMP router."""

    async def priorities_set(self, changes: Sequence[PriorityChange]) -> None:
        """The SMP router has what was wanted. Notifiers that were replaced meanwhile stay as they are."""


class MessageRecords(Protocol):
    """Messages on their way to the app. They go with their connection."""

    async def keep_message(self, message: KeptMessage) -> KeptMessage | None:
        """With its number. It is its queue's last one from now on, as with `message_received`.

        If it was that before, it is not kept again: None if it was settled or its queue is gone.
        """

    async def kept_messages(self) -> list[KeptMessage]:
        """In the order in which they came."""

    async def forget_messages(self, numbers: Sequence[int]) -> None:
        """The app has them."""


class TokenRecords(Protocol):
    """At most one token; and those that are still to be deleted at their routers."""

    async def token(self) -> AgentToken | None: ...

    async def save_token(self, token: AgentToken) -> None:
        """In place of the one there is, if there is one."""

    async def remove_token(self, *, delete_at_router: bool, now: int) -> TokenToDelete | None:
        """With `delete_at_router` and a token id it is written down to be deleted there, in the same transaction."""

    async def tokens_to_delete(self) -> list[TokenToDelete]:
        """Oldest first."""

    async def token_deleted(self, number: int) -> None: ...

    async def forget_tokens_to_delete(self, before: int) -> int: ...


class EndpointRecords(Protocol):
    """Secrets of Web Push endpoints: of the one in use, and of former ones whose pushes may come late."""

    async def keep_endpoint_secret(self, kept: EndpointSecret, most: int) -> None:
        """As the newest, in place of one for the same device token. Only `most` stay, and that of the token."""

    async def endpoint_secrets(self) -> list[EndpointSecret]:
        """Newest first."""

    async def forget_endpoint_secrets(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Completion:
    """An action that a worker has finished."""

    done: AgentSubscription
    """The row as the worker read it."""
    then: AgentSubscription | None
    """What follows; None deletes the row."""
    queue: ReceiveQueue | None = None
    """The queue whose notifier is new, with it."""


class SubscriptionRecords(Protocol):
    async def subscription(self, connection_id: str) -> AgentSubscription | None: ...

    async def subscriptions(self, connection_ids: Sequence[str] | None = None) -> list[AgentSubscription]:
        """All, or those of these connections."""

    async def put_subscriptions(self, wanted: Sequence[AgentSubscription]) -> list[AgentSubscription]:
        """The supervisor's word: replaces what there is, with the next versions, which are returned.

        Connections that are gone are left out.
        """

    async def due_actions(
        self, router: RouterLocation, *, at_smp_router: bool, now: float, limit: int
    ) -> list[AgentSubscription]:
        """Oldest first; the same rows come back until they are completed.

        CHECK and ASK_FATE are due at their time, all else at once.
        """

    async def next_due_at(self, router: RouterLocation, *, at_smp_router: bool) -> float | None:
        """When the next action at this router is due; None if there is none."""

    async def routers_with_actions(self, *, at_smp_router: bool) -> list[RouterLocation]: ...

    async def complete(self, completions: Sequence[Completion]) -> list[bool]:
        """All in one transaction, with the new notifiers of queues.

        If the supervisor replaced a row meanwhile, what the action changed of ids, phase and status is written and the
        supervisor's action stays; a row that was to be deleted stays without ids. False for these, and for rows that
        are gone (ntf.md 6.5).
        """

    async def delete_subscriptions(self, connection_ids: Sequence[str]) -> None: ...


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
        """Sets, changes or, with None, removes it. Atomic: after a crash the store is readable with one of the two."""

    async def check(self) -> None: ...

    async def close(self) -> None: ...
