"""Snapshots of an NTF store in memory, as lines of its files (ntf.md 5.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from tocsin.durable.log_fields import encode_field
from tocsin.ntf_router.store.logs.change_log import (
    DirectChange,
    QueuesAssociated,
    QueuesEnded,
    QueuesGone,
    cron_sent_line,
    failed_line,
    kept_line,
    registered_line,
    state_line,
    totals_line,
)
from tocsin.ntf_router.store.logs.store_log import ServiceSet, SubscriptionAdded, TokenAdded
from tocsin.ntf_router.store.memory.tables import NtfTables
from tocsin.ntf_router.store.memory.token_table import KeptToken
from tocsin.ntf_router.store.records import Accounting, TokenRecord
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.pushes import notification_text
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

PAUSE_AFTER: Final = 128
"""Tokens to copy before other tasks get a turn."""


def compact_lines(tables: NtfTables) -> Iterator[bytes]:
    """Yield the lines of a compact store log: tokens, then subscriptions, then services."""
    for token in tables.tokens:
        yield TokenAdded(token.record).encode()
    for row in tables.routers.table.rows():
        if not tables.routers.table.is_direct(row):
            yield SubscriptionAdded(tables.subscription_record(row)).encode()
    for router in tables.routers:
        if router.service_id is not None:
            location = tables.routers.address(router.addresses[0]).location
            yield ServiceSet(location, router.service_id).encode()


def _associations(tables: NtfTables, token: KeptToken) -> Iterator[QueuesAssociated]:
    """Return one record for each address of SMP routers of the token."""
    table = tables.routers.table
    queues: dict[int, list[bytes]] = {}
    for row in token.rows:
        if table.is_direct(row):
            queues.setdefault(table.address(row), []).append(table.notifier_id(row))
    for number, notifier_ids in queues.items():
        location = tables.routers.address(number).location
        yield QueuesAssociated(token.record.token_id, location, tuple(notifier_ids))


class _Notification(NamedTuple):
    token_id: bytes
    subscription_id: bytes
    router: RouterLocation
    notifier_id: bytes
    received_at: float
    nonce: bytes
    sealed_meta: bytes
    pending: bool


@dataclass(frozen=True, slots=True)
class NtfStoreSnapshot:
    """An immutable copy, which a thread can write while the store changes."""

    accounting: Accounting
    tokens: list[TokenRecord]
    notifications: list[_Notification]
    direct: list[DirectChange]

    @classmethod
    def of(cls, tables: NtfTables) -> Self:
        snapshot = cls._begun(tables)
        for token in tables.tokens:
            snapshot._take(tables, token)
        return snapshot

    @classmethod
    def _begun(cls, tables: NtfTables) -> Self:
        marks: list[DirectChange] = [QueuesEnded((each,), until) for each, until in tables.direct.ended()]
        marks += [QueuesGone((each,), at) for each, at in tables.direct.gone.items()]
        return cls(tables.notifications.accounting(), [], [], marks)

    @classmethod
    async def taken_slowly(cls, tables: NtfTables) -> Self:
        """Return the state at the moment of the call, while other tasks go on to change the store.

        Each token is copied before it changes. Only one snapshot may be taken at a time.
        """
        snapshot = cls._begun(tables)
        taken: set[int] = set()

        def take(token: KeptToken) -> None:
            if token.number not in taken:
                taken.add(token.number)
                snapshot._take(tables, token)

        waiting = list(tables.tokens)
        tables.notifications.before_change = take
        try:
            for count, token in enumerate(waiting, start=1):
                take(token)
                if count % PAUSE_AFTER == 0:
                    await asyncio.sleep(0)
        finally:
            tables.notifications.before_change = None
        return snapshot

    def _take(self, tables: NtfTables, token: KeptToken) -> None:
        self.tokens.append(token.record)
        table = tables.routers.table
        if table.direct_count:
            self.direct.extend(_associations(tables, token))
        for row, last in (token.last or {}).items():
            self.notifications.append(
                _Notification(
                    token.record.token_id,
                    table.subscription_id(row),
                    tables.routers.address(table.address(row)).location,
                    table.notifier_id(row),
                    last.received_at,
                    last.nonce,
                    last.sealed_meta,
                    last.pending,
                )
            )

    def state_lines(self, next_part: int) -> Iterator[bytes]:
        yield state_line(next_part)
        yield totals_line(self.accounting.received, self.accounting.accepted, self.accounting.superseded)
        for outcome, count in sorted(self.accounting.failed.items()):
            yield failed_line(outcome, count)
        for token in self.tokens:
            if token.registered_at:
                yield registered_line(token.token_id, token.registered_at)
            if token.cron_sent_at is not None:
                yield cron_sent_line(token.token_id, token.cron_sent_at)
        # Queues come before their marks, and all of them before their notifications.
        for change in sorted(self.direct, key=lambda each: not isinstance(each, QueuesAssociated)):
            yield change.encode()
        for each in self.notifications:
            yield kept_line(
                each.subscription_id, each.received_at, each.nonce, each.sealed_meta, pending=each.pending
            )

    def last_notification_lines(self) -> Iterator[bytes]:
        """Yield the reference's lines, `v1 tknId item`, a token's oldest first."""
        for each in self.notifications:
            queue = NotifierQueue(each.router, each.notifier_id)
            item = notification_text(queue, int(each.received_at), each.nonce, each.sealed_meta)
            yield b"v1 " + encode_field(each.token_id) + b" " + item
