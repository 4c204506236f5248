"""Device tokens of an NTF store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Final

from tocsin.ntf_router.store.interface import Registered, Replaced
from tocsin.ntf_router.store.logs.store_log import (
    CronSet,
    TokenAdded,
    TokenRemoved,
    TokenReplaced,
    TokenStatusSet,
    TokenUsed,
)
from tocsin.ntf_router.store.memory.tables import NtfTables
from tocsin.ntf_router.store.memory.token_table import KeptToken
from tocsin.ntf_router.store.records import TOKEN_INVALID, TokenRecord
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.lifecycles import CONFIRMED, UNVERIFIED, VERIFIABLE
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

PAUSE_AFTER: Final = 4096
"""Tokens to check before other tasks get a turn."""

_CONFIRMED: Final = TokenStatus(TokenState.CONFIRMED)
_ACTIVE: Final = TokenStatus(TokenState.ACTIVE)
_REGISTERED: Final = TokenStatus(TokenState.REGISTERED)


class MemoryTokens:
    """Implements `TokenStore`, which describes the methods."""

    _tables: NtfTables

    async def token(self, token_id: bytes) -> TokenRecord | None:
        await self._tables.journal.ready()
        token = self._tables.tokens.get(token_id)
        return None if token is None else token.record

    async def register(self, token: TokenRecord, since: int, most: int) -> TokenRecord | Registered:
        await self._tables.journal.ready()
        existing = self._tables.tokens.registration(token.device_token, token.verify_key)
        if existing is not None:
            return existing.record
        if await self.unverified_registrations(token.device_token, since) >= most:
            return Registered.QUOTA
        if not self._tables.add_token(token):
            return Registered.TAKEN
        self._tables.journal.append(TokenAdded(token))
        if token.registered_at:
            self._tables.journal.registered(token.token_id, token.registered_at)
        if token.cron_sent_at is not None:
            self._tables.journal.cron_sent(token.token_id, token.cron_sent_at)
        await self._tables.journal.commit()
        return Registered.DONE

    async def unverified_registrations(self, device_token: DeviceToken, since: int) -> int:
        await self._tables.journal.ready()
        found = [
            token
            for token in self._tables.tokens.registrations(device_token)
            if token.record.status.state in UNVERIFIED
        ]
        old = [token for token in found if token.record.registered_at < since]
        for token in old:
            if not token.rows:
                self._tables.remove_token(token)
                self._tables.journal.append(TokenRemoved(token.record.token_id))
        if old:
            await self._tables.journal.commit()
        return len(found) - len(old)

    async def remove_unverified(self, before: int) -> int:
        removed = 0
        for count, token in enumerate(list(self._tables.tokens)):
            if count % PAUSE_AFTER == 0:
                await asyncio.sleep(0)
                await self._tables.journal.ready()
            record = token.record
            if (
                record.status.state in UNVERIFIED
                and record.registered_at < before
                and not token.rows
                and self._tables.tokens.get(record.token_id) is token
            ):
                self._tables.remove_token(token)
                self._tables.journal.append(TokenRemoved(record.token_id))
                removed += 1
        await self._tables.journal.commit()
        return removed

    async def note_use(self, token_id: bytes, day: int) -> None:
        await self._tables.journal.ready()
        token = self._tables.tokens.get(token_id)
        if token is not None and token.record.updated_at != day:
            token.record = replace(token.record, updated_at=day)
            self._tables.journal.append(TokenUsed(token_id, day))
            await self._tables.journal.commit()

    async def register_again(self, token_id: bytes, registered_at: int) -> bool:
        await self._tables.journal.ready()
        token = self._tables.tokens.get(token_id)
        if token is None:
            return False
        if token.record.status.state not in VERIFIABLE:
            token.record = replace(token.record, status=_REGISTERED, registered_at=registered_at)
            self._tables.journal.append(TokenStatusSet(token_id, _REGISTERED))
            self._tables.journal.registered(token_id, registered_at)
            await self._tables.journal.commit()
        return True

    async def confirm_token(self, token_id: bytes) -> bool:
        await self._tables.journal.ready()
        token = self._tables.tokens.get(token_id)
        if token is None or token.record.status.state in CONFIRMED:
            return False
        token.record = replace(token.record, status=_CONFIRMED)
        self._tables.journal.append(TokenStatusSet(token_id, _CONFIRMED))
        await self._tables.journal.commit()
        return True

    async def activate_token(self, token_id: bytes, code: bytes) -> list[NotifierQueue] | None:
        await self._tables.journal.ready()
        token = self._tables.tokens.get(token_id)
        if token is None or token.record.code != code or token.record.status.state not in VERIFIABLE:
            return None
        changed, queues = self._tables.activate(token)
        if changed:
            self._tables.journal.append(TokenStatusSet(token_id, _ACTIVE))
            await self._tables.journal.commit()
        return queues

    async def invalidate_token(self, token_id: bytes, device_token: DeviceToken, status: TokenStatus) -> bool:
        await self._tables.journal.ready()
        token = self._tables.tokens.get(token_id)
        if token is None or token.record.device_token != device_token:
            return False
        self._tables.end_all_pending(token, TOKEN_INVALID)
        changed = token.record.status != status
        if changed:
            token.record = replace(token.record, status=status)
            self._tables.journal.append(TokenStatusSet(token_id, status))
        await self._tables.journal.commit()
        return changed

    async def replace_token(
        self, token_id: bytes, device_token: DeviceToken, code: bytes, registered_at: int
    ) -> Replaced:
        await self._tables.journal.ready()
        token = self._tables.tokens.get(token_id)
        if token is None:
            return Replaced.MISSING
        record = replace(
            token.record,
            device_token=device_token,
            code=code,
            status=_REGISTERED,
            registered_at=registered_at,
        )
        if not self._tables.tokens.change_device_token(token, record):
            return Replaced.TAKEN
        self._tables.journal.append(TokenReplaced(token_id, device_token, code))
        self._tables.journal.registered(token_id, registered_at)
        await self._tables.journal.commit()
        return Replaced.DONE

    async def set_cron(self, token_id: bytes, minutes: int, at: int) -> bool:
        await self._tables.journal.ready()
        token = self._tables.tokens.get(token_id)
        if token is None:
            return False
        token.record = replace(token.record, cron_minutes=minutes, cron_sent_at=at)
        self._tables.journal.append(CronSet(token_id, minutes))
        self._tables.journal.cron_sent(token_id, at)
        await self._tables.journal.commit()
        return True

    async def delete_token(self, token_id: bytes) -> list[NotifierQueue] | None:
        await self._tables.journal.ready()
        token = self._tables.tokens.get(token_id)
        if token is None:
            return None
        queues = self._tables.remove_token(token)
        self._tables.journal.append(TokenRemoved(token_id))
        await self._tables.journal.commit()
        return queues

    async def cron_due(self, now: int, page: int = 1000) -> AsyncIterator[Sequence[TokenRecord]]:
        due: list[TokenRecord] = []
        for count, token in enumerate(list(self._tables.tokens), start=1):
            if self._is_due(token, now) and self._tables.tokens.get(token.record.token_id) is token:
                due.append(token.record)
            if len(due) >= page:
                yield due
                due = []
            elif count % PAUSE_AFTER == 0:
                await asyncio.sleep(0)
        if due:
            yield due

    async def cron_sent(self, token_ids: Sequence[bytes], at: int) -> None:
        await self._tables.journal.ready()
        for token_id in token_ids:
            token = self._tables.tokens.get(token_id)
            if token is not None:
                token.record = replace(token.record, cron_sent_at=at)
                self._tables.journal.cron_sent(token_id, at)
        await self._tables.journal.commit()

    def _is_due(self, token: KeptToken, now: int) -> bool:
        record = token.record
        if record.cron_minutes == 0 or record.status.state is not TokenState.ACTIVE:
            return False
        begin = record.cron_sent_at or 0
        if token.last is not None:
            begin = max(begin, *(int(last.received_at) for last in token.last.values()))
        return begin + record.cron_minutes * 60 < now and not self._tables.notifications.has_pending(
            record.token_id
        )
