"""The subscription of our service at one SMP router: all its queues with one command (ntf.md 4.9)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from tocsin.clients import SmpClient
from tocsin.clients.requests import RouterRefused
from tocsin.errors import ResponseTimeout, UnexpectedResponse
from tocsin.ntf_router.store.records import UsedRouter
from tocsin.ntf_router.subscriber.own_services import (
    CertifiedService,
    DirectRegistration,
    OwnService,
    ServedQueues,
)
from tocsin.ntf_router.subscriber.smp_network import SmpRouterInUse
from tocsin.protocol.error_codes import ErrorCode

AGAIN_SECONDS: Final = 30.0
"""The delay before a lost service is taken back, and before a difference in queues is checked again."""

logger = logging.getLogger(__name__)


class ServiceSubscription:
    """Subscribes our service. `wake` is called when `wanted` becomes true, `again` when another round is needed."""

    def __init__(self, router: SmpRouterInUse, wake: Callable[[], None], again: Callable[[], None]) -> None:
        self._router = router
        self._state = router.state
        self._wake = wake
        self._again = again
        self.wanted = False
        self.current: OwnService | None = None
        """Our service in this session, once it is known."""
        self._lost = False
        """The service was lost and will be taken back soon. Routers may repeat ENDS as often as they like."""
        self._differed = False
        self._registers = False
        """Whether this session registers for direct notifications, until the SMP router refuses."""

    def session_begins(self, client: SmpClient) -> None:
        session = client.session.service
        self.current = None if session is None else CertifiedService(session.service_id)
        self._registers = client.direct and self._router.network.direct is not None
        self._differed = False

    def needed(self) -> None:
        """Subscribe our service with NSSUB if this session can and has not yet: a queue was associated with it."""
        if self._registers and self.current is None:
            self._want()

    def ended(self, service_id: bytes) -> None:
        """Handle ENDS: another connection of our service took its queues. Take them back, but not at once.

        Two NTF routers with one certificate would otherwise take them from each other without a pause.
        """
        if self.current is None or self.current.service_id != service_id:
            logger.info("%s ended a service that is not ours", self._router.address.name)
            return
        self._router.network.counters.services_taken_over += 1
        self._state.pending_service = max(self._state.pending_service, self._state.service_count)
        self._state.service_count = 0
        if self._lost:
            return
        self._lost = True
        logger.warning("%s: another connection took our service over", self._router.address.name)
        self._want_later()

    async def subscribe(self, client: SmpClient, used: UsedRouter) -> bool:
        """Send NSSUB or NSUBS if we have a service there. Returns False if all queues must be subscribed one by one."""
        self._state.pending_service = 0
        service, registration = self.current, self._router.network.direct
        if not self._registers:
            if used.service_id is None and (service is None or not used.associated_count):
                return False
            if service is None or used.service_id not in (None, service.service_id):
                await self._forget("this session does not belong to the service")
                return False
        self._state.pending_service = used.associated_count
        self._router.check_held()
        try:
            if self._registers and registration is not None:
                answer = await self._register(client, registration, used)
            else:
                assert service is not None
                answer = await service.subscribe(client, used)
        except RouterRefused as error:
            if error.error is ErrorCode.SERVICE or error.error is ErrorCode.AUTH:
                self._registers = False
                self._state.pending_service = 0
                await self._forget(str(error))
                return False
            self._state.last_error = str(error)
            self._again()
            return True
        except (ResponseTimeout, UnexpectedResponse) as error:
            self._state.last_error = str(error)
            self._again()
            return True
        self._compare(used, answer)
        return True

    async def _register(
        self, client: SmpClient, registration: DirectRegistration, used: UsedRouter
    ) -> ServedQueues:
        """Send NSSUB, and before it NSRV if the router does not know us."""
        self.current, answer = await registration.service(client, self._router.location, used)
        service_id = self.current.service_id
        await self._router.network.registered(self._router)
        if service_id != used.service_id:
            if used.service_id is not None:
                await self._forget("the SMP router knows us by another id now")
            await self._router.until_stored(
                lambda: self._router.store.subscribed(self._router.location, [], service_id)
            )
        return answer

    def _compare(self, used: UsedRouter, answer: ServedQueues) -> None:
        """Compare the router's number of our queues with ours. The pipeline repairs differences.

        A queue that a packet associates is known here before it is known there, so a session with direct notifications
        asks a second time before it believes a difference.
        """
        self._state.service_count = answer.count
        self._state.pending_service = 0
        self._state.drift = answer.count - used.associated_count
        hash_differs = any(answer.ids_hash) and answer.ids_hash != used.associated_hash
        differs = bool(self._state.drift or hash_differs)
        if differs and self._registers and not self._differed:
            self._differed = True
            self._want_later()
            return
        self._differed = False
        if not differs:
            logger.info(
                "%s: our service is subscribed to %d queues; %s with ours",
                self._router.address.name,
                answer.count,
                "count and hash agree" if any(answer.ids_hash) or not answer.count else "the count agrees",
            )
        else:
            self._router.network.counters.service_drifts += 1
            logger.warning(
                "%s has %d queues for our service, we have %d%s",
                self._router.address.name,
                answer.count,
                used.associated_count,
                "" if self._state.drift else " others",
            )

    async def _forget(self, why: str) -> None:
        self._router.network.counters.services_forgotten += 1
        logger.warning("%s: queues are subscribed one by one: %s", self._router.address.name, why)
        await self._router.until_stored(lambda: self._router.store.forget_service(self._router.location))

    def _want(self) -> None:
        self._lost = False
        self.wanted = True
        self._wake()

    def _want_later(self) -> None:
        asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._want)
