"""`AgentStore` in one SQLite file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from tocsin.agent.store.records import AgentConnection, AgentSubscription, ReceiveQueue, SendQueue
from tocsin.agent.store.sqlite import (
    connection_tables,
    message_table,
    priority_table,
    subscription_table,
    token_tables,
)
from tocsin.agent.store.sqlite.database import SqliteDatabase, SqliteSession
from tocsin.agent.store.sqlite.vault import SCRYPT_N

P = ParamSpec("P")
T = TypeVar("T")


@asynccontextmanager
async def opened_agent_store(
    path: Path, *, passphrase: str | None = None, executor: Executor | None = None, scrypt_n: int = SCRYPT_N
) -> AsyncIterator[AgentSqliteStore]:
    """Open a store. Many agents of one process may share an executor of one thread. Raises StoreError."""
    database = await SqliteDatabase.open(path, passphrase=passphrase, executor=executor, scrypt_n=scrypt_n)
    store = AgentSqliteStore(database, scrypt_n)
    try:
        yield store
    finally:
        await store.close()


def transaction(
    work: Callable[Concatenate[SqliteSession, P], T],
) -> Callable[Concatenate[AgentSqliteStore, P], Coroutine[Any, Any, T]]:
    """Make a method that runs a function of the tables in one transaction."""

    async def method(self: AgentSqliteStore, /, *arguments: P.args, **named: P.kwargs) -> T:
        return await self.database.run(lambda session: work(session, *arguments, **named))

    return method


def _add_connection(
    session: SqliteSession,
    connection: AgentConnection,
    receive: ReceiveQueue | None,
    send: SendQueue | None,
    subscription: AgentSubscription | None = None,
) -> None:
    connection_tables.add_connection(session, connection, receive, send)
    if subscription is not None:
        subscription_table.put_subscriptions(session, [subscription])


class AgentSqliteStore:
    """Implements `AgentStore`, which documents the methods."""

    def __init__(self, database: SqliteDatabase, scrypt_n: int = SCRYPT_N) -> None:
        self.database = database
        self._scrypt_n = scrypt_n

    add_connection = transaction(_add_connection)
    connection = transaction(connection_tables.connection)
    connections = transaction(connection_tables.connections)
    unfinished_connections = transaction(connection_tables.unfinished_connections)
    leave_connection = transaction(connection_tables.leave_connection)
    delete_connection = transaction(connection_tables.delete_connection)
    set_notifications = transaction(connection_tables.set_notifications)
    add_receive_queue = transaction(connection_tables.add_receive_queue)
    set_primary = transaction(connection_tables.set_primary)
    receive_queues = transaction(connection_tables.receive_queues)
    primary_queues = transaction(connection_tables.primary_queues)
    notified_queues = transaction(connection_tables.notified_queues)
    secure_queue = transaction(connection_tables.secure_queue)
    clear_notifiers = transaction(connection_tables.clear_notifiers)
    delete_receive_queue = transaction(connection_tables.delete_receive_queue)
    add_send_queue = transaction(connection_tables.add_send_queue)
    send_queues = transaction(connection_tables.send_queues)
    update_send_queue = transaction(connection_tables.update_send_queue)
    delete_send_queue = transaction(connection_tables.delete_send_queue)

    routers_with_priority_changes = transaction(priority_table.routers_with_priority_changes)
    priority_changes = transaction(priority_table.priority_changes)
    priorities_set = transaction(priority_table.priorities_set)

    message_received = transaction(message_table.message_received)
    keep_message = transaction(message_table.keep_message)
    kept_messages = transaction(message_table.kept_messages)
    forget_messages = transaction(message_table.forget_messages)

    token = transaction(token_tables.token)
    save_token = transaction(token_tables.save_token)
    remove_token = transaction(token_tables.remove_token)
    tokens_to_delete = transaction(token_tables.tokens_to_delete)
    token_deleted = transaction(token_tables.token_deleted)
    forget_tokens_to_delete = transaction(token_tables.forget_tokens_to_delete)
    keep_endpoint_secret = transaction(token_tables.keep_endpoint_secret)
    endpoint_secrets = transaction(token_tables.endpoint_secrets)
    forget_endpoint_secrets = transaction(token_tables.forget_endpoint_secrets)

    subscription = transaction(subscription_table.subscription)
    subscriptions = transaction(subscription_table.subscriptions)
    put_subscriptions = transaction(subscription_table.put_subscriptions)
    due_actions = transaction(subscription_table.due_actions)
    next_due_at = transaction(subscription_table.next_due_at)
    routers_with_actions = transaction(subscription_table.routers_with_actions)
    complete = transaction(subscription_table.complete)

    async def change_passphrase(self, passphrase: str | None) -> None:
        await self.database.change_passphrase(passphrase, self._scrypt_n)

    async def close(self) -> None:
        await self.database.close()
