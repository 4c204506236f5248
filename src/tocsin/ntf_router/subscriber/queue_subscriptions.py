"""Subscribing to the queues of one SMP router (ntf.md 4.5, 4.8, 4.9).

Theory of operation. The store knows which queues are wanted; nothing is kept here per queue. Each session begins with
a round that subscribes to all of them: first to those of our service, if we have one there, then to the rest page by
page. Later queues (SNEW) are subscribed as they come. If too many wait, another round finds them in the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from tocsin.clients import SmpClient
from tocsin.clients.requests import Outcome
from tocsin.crypto.keys import private_key_from_der
from tocsin.errors import (
    BadKey,
    ConnectionLost,
    LocalProtocolError,
    ResponseTimeout,
    TocsinError,
    UnexpectedResponse,
)
from tocsin.ntf_router.store.interface import WantedPage
from tocsin.ntf_router.store.records import UsedRouter
from tocsin.ntf_router.subscriber.own_services import CertifiedService, OwnService
from tocsin.ntf_router.subscriber.service_subscription import ServiceSubscription
from tocsin.ntf_router.subscriber.smp_network import SmpRouterInUse
from tocsin.protocol.error_codes import (
    NOTICE_VERSION,
    Blocked,
    BlockNotice,
    BlockReason,
    CommandFault,
    ErrorCode,
    ProxyFault,
    RouterError,
    StoreFault,
    encode_error,
)
from tocsin.protocol.ntf.statuses import SubscriptionFailed, SubscriptionState, SubscriptionStatus
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.smp.responses import Subscribed
from tocsin.protocol.smp.service_subscriptions import NO_IDS_HASH

NEW_QUEUES: Final = 10_000
"""New queues that may wait here. Beyond this number another round finds them in the store."""
ROUND_AGAIN_SECONDS: Final = 30.0
"""The delay of another round when the SMP router did not answer for some queues."""
TAKE_BACK_SECONDS: Final = 5.0
"""The delay before queues are taken back from an instance that had lost its lease: one round serves many of them."""
FIRST_PAGE: Final = 32
"""Queues of a first page: few, because a database that has just started reads and marks each of them on disk."""
PAGE_GROWTH: Final = 4
"""Each page is this many times larger than the one before, up to the setting."""
PLACE_SECONDS: Final = 30.0
"""The longest wait for a place, so that routers that do not answer cannot block all others."""
UNUSED_SECONDS: Final = 600.0
"""The interval in which an idle connection is checked for being needed at all."""

_NO_KEY: Final = SubscriptionFailed("CryptoError")
_NO_SERVICE: Final = SubscriptionFailed("SMP error SERVICE")

logger = logging.getLogger(__name__)


class QueueSubscriptions:
    """Subscribes to the queues of one SMP router."""

    def __init__(self, router: SmpRouterInUse) -> None:
        self._router = router
        self._state = router.state
        self._new: dict[bytes, bytes] = {}
        self._left = 0
        """Queues of this round that are still to be asked for, as the store counted them."""
        self._asked = 0
        """Queues that are asked for now, until their answers are stored."""
        self._round_wanted = False
        self._service_refused: set[bytes] = set()
        """Queues that were answered with SERVICE in their last round. If it happens again, that is final."""
        self._taken_back: set[bytes] = set()
        self._taking_back = False
        self._awake = asyncio.Event()
        self.first: Sequence[bytes] = ()
        """Queues to which the next round subscribes before the others."""
        self.service = ServiceSubscription(router, self._awake.set, self._later_again)

    def add(self, notifier_id: bytes, notifier_key: bytes) -> None:
        """Subscribe to a queue, which is in the store already."""
        if notifier_id in self._new or len(self._new) < NEW_QUEUES:
            self._state.pending += notifier_id not in self._new
            self._new[notifier_id] = notifier_key
        else:
            self._round_wanted = True
        self._awake.set()

    def subscribe_again(self) -> None:
        """Start another round, because the store was changed from outside."""
        self._round_wanted = True
        self._awake.set()

    def forget_wishes(self) -> None:
        """Forget what waits here. The next round finds all of it in the store."""
        self._new.clear()
        self._round_wanted = self.service.wanted = False

    async def unused(self) -> bool:
        """Whether no queue of the router is wanted. `add` was then not called since the store was read."""
        used = await self._router.until_stored(lambda: self._router.store.used_router(self._router.location))
        wanted = used is not None and used.needed and used.associated_count + used.individual_count
        return not (wanted or self._new or self._round_wanted)

    async def run(self, client: SmpClient) -> None:
        """Run until the connection is not needed."""
        self.service.session_begins(client)
        await self._round(client)
        while True:
            if self._round_wanted:
                await self._round(client)
            elif self.service.wanted:
                await self._take_service_back(client)
            elif self._new:
                batch = list(self._new.items())[: self._router.network.settings.batch]
                for notifier_id, _ in batch:
                    del self._new[notifier_id]
                await self._subscribe_queues(client, batch)
            else:
                self._awake.clear()
                try:
                    async with asyncio.timeout(UNUSED_SECONDS):
                        await self._awake.wait()
                except TimeoutError:
                    if await self.unused():
                        return

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """Hold one of the places for resubscription, or go ahead without one after `PLACE_SECONDS`."""
        places = self._router.network.places
        try:
            async with asyncio.timeout(PLACE_SECONDS):
                await places.acquire()
        except TimeoutError:
            yield
            return
        try:
            yield
        finally:
            places.release()

    async def _round(self, client: SmpClient) -> None:
        """Subscribe to all queues that the store wants."""
        self.forget_wishes()
        async with self._place():
            self._state.resubscribing = True
            self._state.subscribed = self._state.service_count = 0
            store, location = self._router.store, self._router.location
            associations = await self._router.until_stored(lambda: store.associations(location))
            used: UsedRouter | None = None
            if associations.any:
                used = await self._router.until_stored(lambda: store.used_router(location))
            used_now = used or UsedRouter(location, associations.service_id, 0, NO_IDS_HASH, 0)
            by_service = await self.service.subscribe(client, used_now)
            self._left = self._asked = 0
            self._show_pending()
            after: bytes | None = None
            first, self.first = self.first, ()
            settings = self._router.network.settings
            limit = min(settings.batch, FIRST_PAGE)
            while True:
                page = await self._router.until_stored(
                    partial(
                        store.queues_to_subscribe,
                        location,
                        WantedPage(after, min(limit, settings.page), not by_service, first),
                    )
                )
                limit *= PAGE_GROWTH
                if self._new:  # new during this round, and in the store already
                    for notifier_id, _ in page.queues:
                        self._new.pop(notifier_id, None)
                for start in range(0, len(page.queues), self._router.network.settings.batch):
                    batch = page.queues[start : start + self._router.network.settings.batch]
                    self._left = max(0, self._left - len(batch))
                    await self._subscribe_queues(client, batch)
                if after is None and page.cursor is not None:
                    await self._count_pending(used, by_service, len(page.queues))
                after = page.cursor
                if after is None:
                    break
            self._left = 0  # some may have gone since they were counted
            self._show_pending()
            self._state.resubscribing = False

    async def _count_pending(self, used: UsedRouter | None, by_service: bool, begun: int) -> None:
        """Count the queues that wait, for the operator, while the first ones are subscribed already."""
        if used is None:
            used = await self._router.until_stored(
                lambda: self._router.store.used_router(self._router.location)
            )
        if used is not None:
            queues = used.individual_count + (0 if by_service else used.associated_count)
            self._left = max(0, queues - begun - len(self._new))  # new ones are in the store already
            self._show_pending()

    def _show_pending(self) -> None:
        self._state.pending = self._left + self._asked + len(self._new)

    async def _take_service_back(self, client: SmpClient) -> None:
        self.service.wanted = False
        used = await self._router.until_stored(lambda: self._router.store.used_router(self._router.location))
        if used is not None and not await self.service.subscribe(client, used):
            self._round_wanted = True  # our service is void there: subscribe queue by queue

    async def _subscribe_queues(self, client: SmpClient, queues: Sequence[tuple[bytes, bytes]]) -> None:
        self._asked = len(queues)
        self._show_pending()
        service = self.service.current
        ours, alone = [], []
        failed: list[tuple[bytes, SubscriptionStatus]] = []
        notifiers = []
        for notifier_id, key in queues:
            try:
                notifiers.append((notifier_id, private_key_from_der(key)))
            except BadKey:  # a damaged row must not affect other queues
                failed.append((notifier_id, _NO_KEY))
        ntf_router_id = None if service is None else service.ntf_router_id
        self._router.check_held()
        async for answer in client.subscribe_notifications(notifiers, ntf_router_id):
            notifier_id, outcome = answer.request.entity_id, answer.outcome
            match outcome:
                case Subscribed(service_id) if service is not None and service_id == service.service_id:
                    ours.append(notifier_id)
                case Subscribed() | Done():
                    alone.append(notifier_id)
                case ConnectionLost():
                    raise outcome
                case ResponseTimeout():
                    self._later_again()
                case _:
                    failed.append((notifier_id, _status(outcome)))
        if self._service_refused:
            self._service_refused.difference_update(alone, ours)
        self._router.network.counters.queues_subscribed += len(alone) + len(ours)
        self._router.network.counters.queues_refused += len(failed)
        # The store does not change for a queue that this session subscribed before, so it is not counted twice.
        if alone:
            self._state.subscribed += await self._router.until_stored(
                lambda: self._router.store.subscribed(self._router.location, alone, None)
            )
            self._router.report([(each, SubscriptionState.ACTIVE) for each in alone], "NSUB")
        if ours and service is not None:
            service_id = service.service_id
            self._state.service_count += await self._router.until_stored(
                lambda: self._router.store.subscribed(self._router.location, ours, service_id)
            )
            self._router.report([(each, SubscriptionState.ACTIVE) for each in ours], "NSUB by the service")
        if failed:
            refused = {each for each, status in failed if status is SubscriptionState.SERVICE}
            again = refused & self._service_refused
            failed = [(each, _NO_SERVICE if each in again else status) for each, status in failed]
            await self._router.until_stored(
                lambda: self._router.store.set_statuses(self._router.location, failed)
            )
            self._router.report(failed, "NSUB")
            self._service_refused = (self._service_refused | refused) - again
            if len(self._service_refused) > NEW_QUEUES:
                self._service_refused.clear()
            if refused - again:
                self._without_service(service, len(refused - again))
        self._asked = 0
        self._show_pending()

    def _without_service(self, service: OwnService | None, count: int) -> None:
        """Ask once more for queues that were answered with SERVICE, without our certificate if this session shows it.

        Agents of 7.0 give such a subscription up, so it must not stay so (v7.md 7.1).
        """
        if isinstance(service, CertifiedService):
            self._router.service_refused = True
            raise ConnectionLost(f"our service was refused for {count} queues: connecting without it")
        self._later_again()

    def taken_away(self, notifier_ids: Sequence[bytes]) -> list[bytes]:
        """Subscribe again to queues that an instance has taken which had lost its lease. Returns which.

        A queue is taken back once: if it happens again, somebody else has it now.
        """
        back = [each for each in notifier_ids if each not in self._taken_back]
        if len(self._taken_back) + len(back) > NEW_QUEUES:
            self._taken_back.clear()
        self._taken_back.update(back)
        if back and not self._taking_back:
            self._taking_back = True
            asyncio.get_running_loop().call_later(TAKE_BACK_SECONDS, self._take_back)
        return back

    def _take_back(self) -> None:
        self._taking_back = False
        self.subscribe_again()

    def _later_again(self) -> None:
        """Start another round in a while, because some queues got no answer."""

        asyncio.get_running_loop().call_later(ROUND_AGAIN_SECONDS, self.subscribe_again)


def _status(outcome: Outcome) -> SubscriptionStatus:
    """Return the status of a subscription whose NSUB failed with this outcome (ntf.md 4.5)."""
    match outcome:
        case Refused(error=ErrorCode.AUTH):
            return SubscriptionState.AUTH
        case Refused(error=ErrorCode.SERVICE):
            return SubscriptionState.SERVICE
        case Refused(error):
            return SubscriptionFailed(f"SMP error {smp_error_text(error)}")
        case LocalProtocolError():
            return _NO_KEY
        case TocsinError() if not isinstance(outcome, UnexpectedResponse):
            return SubscriptionFailed("ResponseError")
        case _:
            return SubscriptionFailed(f'UnexpectedResponse "Right {outcome.tag.decode()}"')


MAX_TEXT: Final = 250
"""The longest text of a status. It must fit SCHK's answer, a block of 512 bytes, whatever an SMP router sends."""

_REASONS: Final = {BlockReason.SPAM: "BRSpam", BlockReason.CONTENT: "BRContent"}
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def smp_error_text(error: RouterError) -> str:
    match error:
        case CommandFault():
            text = f"CMD {{cmdErr = {error.value}}}"
        case Blocked(reason, notice):
            info = f"BlockingInfo {{reason = {_REASONS[reason]}, notice = {_notice_text(notice)}}}"
            text = f"BLOCKED {{blockInfo = {info}}}"
        case StoreFault(detail):
            text = f'STORE {{storeErr = "{_escaped(detail[:MAX_TEXT])}"}}'
        case ProxyFault():
            text = f"PROXY {{proxyErr = {error.value}}}"
        case _:
            text = _escaped(encode_error(error, NOTICE_VERSION).decode(errors="replace"))
    return text[:MAX_TEXT]


def _notice_text(notice: BlockNotice | None) -> str:
    if notice is None:
        return "Nothing"
    ttl = "Nothing" if notice.ttl is None else f"Just {notice.ttl}"
    return f"Just (ClientNotice {{ttl = {ttl}}})"


def _escaped(text: str) -> str:
    """Escape everything but printable ASCII, so that the text is safe in log lines and in the database."""
    return "".join(_ESCAPES.get(sign) or (sign if " " <= sign <= "~" else f"\\{ord(sign)}") for sign in text)
