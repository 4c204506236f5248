"""Sends pushes from Spark executors: providers stay connected between batches, in a thread of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final

from tocsin.ntf_router.delivery.outcome_rows import NOT_SERVED, TOO_SLOW
from tocsin.ntf_router.delivery.providers import existing_vapid_key, opened_providers
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.provider import Provider, PushOutcome, PushRequest
from tocsin.push.settings import ApnsSettings, FcmSettings, WebPushSettings

AT_ONCE: Final = 64
"""Pushes between two turns of the event loop, in which providers' answers are read."""

Push = tuple[PushProvider, PushRequest]


class PushSender:
    """The providers of one configuration. Its thread ends with the process."""

    def __init__(
        self,
        apns: ApnsSettings,
        fcm: FcmSettings | None = None,
        webpush: WebPushSettings | None = None,
        *,
        public_only: bool = True,
    ) -> None:
        """With `public_only`, Web Push services at private addresses are not dialled.

        Raises ConfigError for an unusable key or certificate.
        """
        self.settings = apns, fcm, webpush, public_only
        self._loop = asyncio.new_event_loop()
        self._providers: Mapping[PushProvider, Provider] = {}
        opened: Future[None] = Future()
        threading.Thread(target=self._run, args=(opened,), name="push-sender", daemon=True).start()
        opened.result()

    def _run(self, opened: Future[None]) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._keep_open(opened))
        finally:
            self._loop.close()  # it could not be opened

    async def _keep_open(self, opened: Future[None]) -> None:
        try:
            apns, fcm, webpush, public_only = self.settings
            if webpush is not None:
                existing_vapid_key(webpush)  # a new one would not be that of the router
            async with opened_providers(apns, webpush, fcm, public_only=public_only) as self._providers:
                opened.set_result(None)
                await asyncio.Event().wait()
        except Exception as error:
            opened.set_exception(error)

    def send(
        self, pushes: Iterator[Push | None], patience: float, rate: float | None = None
    ) -> list[PushOutcome | None]:
        """One outcome per push, None for None. Pushes without an answer after `patience` seconds are `TOO_SLOW`.

        `rate` limits the pushes per second to each provider. The iterator is consumed while sending, so the first
        pushes are under way before the last are composed.
        """
        return asyncio.run_coroutine_threadsafe(self._send(pushes, patience, rate), self._loop).result()

    def drive(self, work: Callable[[Mapping[PushProvider, Provider]], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine with the open providers, and wait for it."""
        asyncio.run_coroutine_threadsafe(work(self._providers), self._loop).result()

    async def _send(
        self, pushes: Iterator[Push | None], patience: float, rate: float | None
    ) -> list[PushOutcome | None]:
        outcomes: list[PushOutcome | None] = []
        answered = _Answers(outcomes)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._submit(pushes, answered, _Pace(rate))
                await answered.all()
        # Pushes that were not submitted because providers had no room.
        outcomes += [None if push is None else TOO_SLOW for push in pushes]
        return [TOO_SLOW if index in answered.missing else each for index, each in enumerate(outcomes)]

    async def _submit(self, pushes: Iterator[Push | None], answered: _Answers, pace: _Pace) -> None:
        for number, push in enumerate(pushes):
            if push is None:
                answered.outcomes.append(None)
                continue
            provider = self._providers.get(push[0])
            if provider is None:
                answered.outcomes.append(NOT_SERVED)
                continue
            call = answered.expect()
            await pace.wait_turn(push[0])
            if provider.room <= 0:
                await provider.wait_for_room()
            provider.submit(push[1], call)
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)


class _Pace:
    """Spreads pushes to each provider evenly over time."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = asyncio.get_running_loop().time()
        self._sent: dict[PushProvider, int] = {}

    async def wait_turn(self, provider: PushProvider) -> None:
        if self._rate is None:
            return
        sent = self._sent.get(provider, 0)
        self._sent[provider] = sent + 1
        due = self._began + sent / self._rate
        if (wait := due - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(wait)


class _Answers:
    """The outcomes so far, and the indexes of those still missing."""

    def __init__(self, outcomes: list[PushOutcome | None]) -> None:
        self.outcomes = outcomes
        self.missing: set[int] = set()
        self._complete = asyncio.Event()

    def expect(self) -> partial[None]:
        """Reserves the next outcome. Returns the callback for the provider."""
        index = len(self.outcomes)
        self.outcomes.append(None)
        self.missing.add(index)
        return partial(self._take, index)

    async def all(self) -> None:
        if self.missing:
            self._complete.clear()
            await self._complete.wait()

    def _take(self, index: int, outcome: PushOutcome) -> None:
        self.outcomes[index] = outcome
        self.missing.discard(index)
        if not self.missing:
            self._complete.set()


_senders: Final[list[PushSender]] = []
"""The senders of this process: one, unless the settings change."""


def sender_of(
    apns: ApnsSettings,
    fcm: FcmSettings | None = None,
    webpush: WebPushSettings | None = None,
    *,
    public_only: bool = True,
) -> PushSender:
    """The process's sender for these settings, created at the first call."""
    for known in _senders:
        if known.settings == (apns, fcm, webpush, public_only):
            return known
    _senders.append(PushSender(apns, fcm, webpush, public_only=public_only))
    return _senders[-1]
