"""Records attempts in the event log and outcomes in the store, in batches.

If the store fails, the recorder keeps the outcomes and tries again until the store works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from tocsin.errors import StoreError
from tocsin.ntf_router.delivery.pushes import NotificationPush
from tocsin.ntf_router.session.requests import NtfEvents
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.records import ACCEPTED, SettledNotification, TokenRecord
from tocsin.ntf_router.store.retry import pause_after
from tocsin.operate.clock import Clock
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus

LATE: Final = 60
"""Seconds after which a message's push, and no longer its arrival, begins the period of periodic pushes. It costs a
write, so it is for pushes after an outage only."""
_CONFIRMED: Final = TokenStatus(TokenState.CONFIRMED)


class OutcomeRecorder:
    """Writes outcomes. Pushes in flight bound its size, because a token's next push waits for its last outcome."""

    def __init__(self, store: NtfStore, events: NtfEvents, clock: Clock) -> None:
        self._store = store
        self._events = events
        self._clock = clock
        self._settled: list[SettledNotification] = []
        self._invalid: list[tuple[TokenRecord, TokenStatus]] = []
        self._confirmed: list[TokenRecord] = []
        self._periodic: dict[int, list[bytes]] = {}
        self._then: list[Callable[[], None]] = []
        self._awake = asyncio.Event()

    @property
    def periodic_unwritten(self) -> bool:
        """Whether periods have begun that are not in the store yet."""
        return bool(self._periodic)

    def attempted(self, pushes: Sequence[NotificationPush]) -> None:
        """Record that these pushes were sent to the provider."""
        self._events.attempted(pushes)

    def settle(self, settled: Sequence[SettledNotification], then: Callable[[], None]) -> None:
        """Call `then` when the outcomes are in the store."""
        self._settled += settled
        self._then.append(then)
        now = self._clock.now()
        for each in settled:
            if each.outcome == ACCEPTED and now - each.received_at > LATE:
                self.periodic_sent(each.token_id)
        self._awake.set()

    def invalidate(self, token: TokenRecord, status: TokenStatus, then: Callable[[], None]) -> None:
        """Invalidate a token that the provider refused, and call `then`."""
        self._events.token_changed(token, token.status, status, "the provider")
        self._invalid.append((token, status))
        self._then.append(then)
        self._awake.set()

    def confirm(self, token: TokenRecord) -> None:
        """Confirm a token whose verification push the provider accepted."""
        self._confirmed.append(token)
        self._awake.set()

    def periodic_sent(self, token_id: bytes) -> None:
        self._periodic.setdefault(self._clock.now(), []).append(token_id)
        self._awake.set()

    async def run(self) -> None:
        while True:
            await self._awake.wait()
            self._awake.clear()
            try:
                await self.flush()
            except StoreError as error:
                self._awake.set()
                await pause_after("writing outcomes of pushes", error)

    async def flush(self) -> None:
        """Write everything that is known now. Raises `StoreError`, and keeps what was not written.

        Outcomes come first: what is pending fails with its token, also what was accepted just before.
        """
        settled, then = self._settled, self._then
        invalid = len(self._invalid)
        self._settled, self._then = [], []
        try:
            if settled:
                await self._store.settle(settled, self._events.settled)
                settled = []
            for _ in range(invalid):
                token, status = self._invalid[0]
                # A write that failed may have been done. A device that registered again since stays registered.
                now = await self._store.token(token.token_id)
                if now is not None and now.status == token.status:
                    await self._store.invalidate_token(token.token_id, token.device_token, status)
                self._invalid.pop(0)
            while self._confirmed:
                token = self._confirmed[0]
                if await self._store.confirm_token(token.token_id):
                    self._events.token_changed(token, token.status, _CONFIRMED, "the provider")
                self._confirmed.pop(0)
            while self._periodic:
                at = next(iter(self._periodic))
                sent = tuple(self._periodic[at])  # more may come while these are written
                await self._store.cron_sent(sent, at)
                del self._periodic[at][: len(sent)]
                if not self._periodic[at]:
                    del self._periodic[at]
        except BaseException:
            self._settled, self._then = settled + self._settled, then + self._then
            raise
        for call in then:
            call()
