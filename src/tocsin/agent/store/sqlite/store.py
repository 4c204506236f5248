"""`AgentStore` in one SQLite file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from tocsin.agent.store.interface import Completion
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
from tocsin.agent.store.sqlite import (
    connections as connection_tables,
)
from tocsin.agent.store.sqlite import (
    endpoints as endpoint_table,
)
from tocsin.agent.store.sqlite import (
    messages as message_table,
)
from tocsin.agent.store.sqlite import (
    priorities as priority_table,
)
from tocsin.agent.store.sqlite import (
    subscriptions as subscription_table,
)
from tocsin.agent.store.sqlite import (
    tokens as token_tables,
)
from tocsin.agent.store.sqlite.database import Session, SqliteDatabase
from tocsin.agent.store.sqlite.vault import SCRYPT_N
from tocsin.errors import StoreError, TocsinError
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

T = TypeVar("T")


@asynccontextmanager
async def opened_agent_store(
    path: Path, *, passphrase: str | None = None, executor: Executor | None = None, scrypt_n: int = SCRYPT_N
) -> AsyncIterator[AgentSqliteStore]:
    """Many agents in one process may share an executor of one thread. Raises StoreError; see `SqliteDatabase`."""
    database = await SqliteDatabase.open(path, passphrase=passphrase, executor=executor, scrypt_n=scrypt_n)
    store = AgentSqliteStore(database, scrypt_n)
    try:
        yield store
    finally:
        await store.close()


class AgentSqliteStore:
    """Implements `AgentStore`; the interface says what each method does."""

    def __init__(self, database: SqliteDatabase, scrypt_n: int = SCRYPT_N) -> None:
        self._database = database
        self._scrypt_n = scrypt_n

    async def _run(self, work: Callable[[Session], T]) -> T:
        try:
            return await self._database.run(work)
        except StoreError:
            raise
        except (TocsinError, ValueError, KeyError) as error:  # a row that is none of ours
            raise StoreError(f"the agent's store is damaged: {type(error).__name__}") from None

    # Connections

    async def add_connection(
        self,
        connection: AgentConnection,
        receive: ReceiveQueue | None,
        send: SendQueue | None,
        subscription: AgentSubscription | None = None,
    ) -> None:
        def work(session: Session) -> None:
            connection_tables.add_connection(session, connection, receive, send)
            if subscription is not None:
                subscription_table.put_subscriptions(session, [subscription])

        await self._run(work)

    async def connection(self, connection_id: str) -> AgentConnection | None:
        found = await self._run(lambda session: connection_tables.connections(session, connection_id))
        return found[0] if found else None

    async def connections(self) -> list[AgentConnection]:
        return await self._run(connection_tables.connections)

    async def unsettled_connections(self) -> list[str]:
        return await self._run(connection_tables.unsettled_connections)

    async def delete_connection(self, connection_id: str) -> None:
        await self._run(lambda session: connection_tables.delete_connection(session, connection_id))

    async def set_notifications(
        self, connection_id: str, enabled: bool, minimum: MinimumPriority = MinimumPriority.ALL
    ) -> bool:
        return await self._run(
            lambda session: connection_tables.set_notifications(session, connection_id, enabled, minimum)
        )

    async def routers_with_priority_changes(self) -> list[RouterLocation]:
        return await self._run(priority_table.routers_with_priority_changes)

    async def priority_changes(self, router: RouterLocation) -> list[PriorityChange]:
        return await self._run(lambda session: priority_table.priority_changes(session, router))

    async def priorities_set(self, changes: Sequence[PriorityChange]) -> None:
        await self._run(lambda session: priority_table.priorities_set(session, changes))

    async def add_receive_queue(self, queue: ReceiveQueue) -> None:
        await self._run(lambda session: connection_tables.add_receive_queue(session, queue))

    async def set_primary(self, connection_id: str, number: int) -> None:
        await self._run(lambda session: connection_tables.set_primary(session, connection_id, number))

    async def receive_queues(self, connection_id: str) -> list[ReceiveQueue]:
        return await self._run(lambda session: connection_tables.receive_queues(session, connection_id))

    async def primary_queues(self, connection_ids: Sequence[str]) -> list[ReceiveQueue]:
        return await self._run(lambda session: connection_tables.primary_queues(session, connection_ids))

    async def notified_queues(self, queues: Sequence[NotifierQueue]) -> list[NotifiedQueue | None]:
        return await self._run(
            lambda session: [connection_tables.notified_queue(session, each) for each in queues]
        )

    async def secure_queue(self, connection_id: str, number: int, sender_key: bytes) -> None:
        await self._run(
            lambda session: connection_tables.secure_queue(session, connection_id, number, sender_key)
        )

    async def set_notifier(self, connection_id: str, number: int, notifier: QueueNotifier | None) -> None:
        await self._run(
            lambda session: connection_tables.set_notifier(session, connection_id, number, notifier)
        )

    async def clear_notifiers(self, connection_ids: Sequence[str]) -> None:
        await self._run(lambda session: connection_tables.clear_notifiers(session, connection_ids))

    async def message_received(
        self, connection_id: str, number: int, sent_at: int, message_id: bytes | None = None
    ) -> None:
        await self._run(
            lambda session: message_table.message_received(
                session, connection_id, number, sent_at, message_id
            )
        )

    async def delete_receive_queue(self, connection_id: str, number: int) -> None:
        await self._run(
            lambda session: connection_tables.delete_receive_queue(session, connection_id, number)
        )

    async def add_send_queue(self, queue: SendQueue) -> None:
        await self._run(lambda session: connection_tables.add_send_queue(session, queue))

    async def send_queues(self, connection_id: str) -> list[SendQueue]:
        return await self._run(lambda session: connection_tables.send_queues(session, connection_id))

    async def update_send_queue(self, queue: SendQueue) -> None:
        await self._run(lambda session: connection_tables.update_send_queue(session, queue))

    async def delete_send_queue(self, connection_id: str, number: int) -> None:
        await self._run(lambda session: connection_tables.delete_send_queue(session, connection_id, number))

    # Messages

    async def keep_message(self, message: KeptMessage) -> KeptMessage | None:
        return await self._run(lambda session: message_table.keep_message(session, message))

    async def kept_messages(self) -> list[KeptMessage]:
        return await self._run(message_table.kept_messages)

    async def forget_messages(self, numbers: Sequence[int]) -> None:
        await self._run(lambda session: message_table.forget_messages(session, numbers))

    # Tokens

    async def token(self) -> AgentToken | None:
        return await self._run(token_tables.saved_token)

    async def save_token(self, token: AgentToken) -> None:
        await self._run(lambda session: token_tables.save_token(session, token))

    async def remove_token(self, *, delete_at_router: bool, now: int) -> TokenToDelete | None:
        return await self._run(lambda session: token_tables.remove_token(session, delete_at_router, now))

    async def tokens_to_delete(self) -> list[TokenToDelete]:
        return await self._run(token_tables.tokens_to_delete)

    async def token_deleted(self, number: int) -> None:
        await self._run(lambda session: token_tables.token_deleted(session, number))

    async def forget_tokens_to_delete(self, before: int) -> int:
        return await self._run(lambda session: token_tables.forget_tokens_to_delete(session, before))

    async def keep_endpoint_secret(self, kept: EndpointSecret, most: int) -> None:
        await self._run(lambda session: endpoint_table.keep_endpoint_secret(session, kept, most))

    async def endpoint_secrets(self) -> list[EndpointSecret]:
        return await self._run(endpoint_table.endpoint_secrets)

    async def forget_endpoint_secrets(self) -> None:
        await self._run(endpoint_table.forget_endpoint_secrets)

    # Subscriptions

    async def subscription(self, connection_id: str) -> AgentSubscription | None:
        return await self._run(lambda session: subscription_table.one_subscription(session, connection_id))

    async def subscriptions(self, connection_ids: Sequence[str] | None = None) -> list[AgentSubscription]:
        return await self._run(lambda session: subscription_table.subscriptions(session, connection_ids))

    async def put_subscriptions(self, wanted: Sequence[AgentSubscription]) -> list[AgentSubscription]:
        return await self._run(lambda session: subscription_table.put_subscriptions(session, wanted))

    async def due_actions(
        self, router: RouterLocation, *, at_smp_router: bool, now: float, limit: int
    ) -> list[AgentSubscription]:
        return await self._run(
            lambda session: subscription_table.due_actions(session, router, at_smp_router, now, limit)
        )

    async def next_due_at(self, router: RouterLocation, *, at_smp_router: bool) -> float | None:
        return await self._run(lambda session: subscription_table.next_due_at(session, router, at_smp_router))

    async def routers_with_actions(self, *, at_smp_router: bool) -> list[RouterLocation]:
        return await self._run(
            lambda session: subscription_table.routers_with_actions(session, at_smp_router)
        )

    async def complete(self, completions: Sequence[Completion]) -> list[bool]:
        return await self._run(lambda session: subscription_table.complete(session, completions))

    async def delete_subscriptions(self, connection_ids: Sequence[str]) -> None:
        await self._run(lambda session: subscription_table.delete_subscriptions(session, connection_ids))

    # The store

    async def change_passphrase(self, passphrase: str | None) -> None:
        await self._database.change_passphrase(passphrase, self._scrypt_n)

    async def check(self) -> None:
        await self._run(lambda session: session.database.execute("SELECT 1").fetchone())

    async def close(self) -> None:
        await self._database.close()
