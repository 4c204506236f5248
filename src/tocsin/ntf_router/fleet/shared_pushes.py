"""Pushes in a fleet: each token's belong to one instance, so others tell that one what there is to push.

A token belongs to a shard, by its id. Codes belong to a shard by the device token, because the rate of codes is limited
for each device token, whoever registers it.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from typing import Final

from tocsin.durable.postgres.leases import LeaseKeeper
from tocsin.durable.postgres.notices import Notices
from tocsin.ntf_router.delivery.delivery import PushDelivery
from tocsin.ntf_router.fleet.told import MOST_TOKENS, CodeTold, PendingTold
from tocsin.ntf_router.store.interface import TokenStore
from tocsin.ntf_router.store.postgres.fences import SHARDS, shard_lease, token_lease
from tocsin.ntf_router.store.records import TokenRecord
from tocsin.ntf_router.store.retry import until_stored
from tocsin.protocol.ntf.device_tokens import PushProvider

CODE_SECONDS: Final = 30.0
"""Seconds for which a code is remembered after it was told: longer than it takes to notice that an instance is gone."""
MOST_CODES: Final = 1000
"""Codes that are remembered. Further ones take the place of the oldest."""


def code_lease(token: TokenRecord) -> str:
    """Return the name of the lease of codes for a device."""
    return shard_lease(zlib.crc32(token.device_token.token) % SHARDS)


class SharedPushes:
    """Implements `session.requests.Pushes`. It pushes here, or tells the instance that does."""

    def __init__(
        self, delivery: PushDelivery, leases: LeaseKeeper, notices: Notices, store: TokenStore
    ) -> None:
        self._delivery: Final = delivery
        self._leases: Final = leases
        self._notices: Final = notices
        self._store: Final = store
        self._codes: deque[tuple[float, int, TokenRecord]] = deque(maxlen=MOST_CODES)
        """Codes that were told recently: when, and to which instance."""
        self._passing_on: dict[tuple[int, PushProvider, bool], dict[bytes, None]] = {}
        """Tokens to be told with the next turn of the loop, by instance and kind of notice."""

    def verify(self, token: TokenRecord) -> None:
        """Push the token's code. If nobody has its lease at the moment, do it here: devices wait for their code."""
        other = self._other_holder(code_lease(token))
        if other is None:
            self._delivery.verify(token)
            return
        self._notices.send(self._leases.channel_of(other), CodeTold(token.token_id).text())
        self._codes.append((asyncio.get_running_loop().time(), other, token))

    async def codes_again(self) -> None:
        """Tell codes again that were told to an instance which is gone since: codes are not in the store.

        A token that was confirmed meanwhile has got its code. Raises StoreError.
        """
        now, members = asyncio.get_running_loop().time(), {each.number for each in self._leases.members}
        told, lost = list(self._codes), []
        self._codes.clear()
        for at, other, token in told:
            if other not in members:
                lost.append(token)
            elif now - at < CODE_SECONDS:
                self._codes.append((at, other, token))
        for token in lost:
            now_stored = await self._store.token(token.token_id)
            if now_stored is not None and (now_stored.status, now_stored.code) == (token.status, token.code):
                self.verify(now_stored)

    def notify(self, token_id: bytes, provider: PushProvider) -> None:
        """Push pending notifications. Whoever takes a lease finds what is pending, so that need not be told."""
        if self._leases.holds(token_lease(token_id)):
            self._delivery.notify(token_id, provider)
        else:
            self._pass_on(token_id, provider, late=False)

    def pending_told(self, told: PendingTold) -> None:
        """Another instance has stored notifications. If our lease has just gone, tell its next holder once."""
        for token_id in told.token_ids:
            if self._leases.holds(token_lease(token_id)):
                self._delivery.notify(token_id, told.provider)
            elif not told.late:
                self._pass_on(token_id, told.provider, late=True)

    async def code_told(self, told: CodeTold) -> None:
        token = await until_stored("reading a token", lambda: self._store.token(told.token_id))
        if token is not None:
            self._delivery.verify(token)

    def _pass_on(self, token_id: bytes, provider: PushProvider, *, late: bool) -> None:
        """Tell the holder, together with the other tokens of the batch that is being handled."""
        other = self._other_holder(token_lease(token_id))
        if other is None:
            return
        if not self._passing_on:
            asyncio.get_running_loop().call_soon(self._tell)
        self._passing_on.setdefault((other, provider, late), {})[token_id] = None

    def _tell(self) -> None:
        passing_on, self._passing_on = self._passing_on, {}
        for (other, provider, late), token_ids in passing_on.items():
            waiting = tuple(token_ids)
            for start in range(0, len(waiting), MOST_TOKENS):
                told = PendingTold(waiting[start : start + MOST_TOKENS], provider, late)
                self._notices.send(self._leases.channel_of(other), told.text())

    def _other_holder(self, lease: str) -> int | None:
        if self._leases.holds(lease):
            return None
        holder = self._leases.holder_of(lease)
        return None if holder == self._leases.number else holder
