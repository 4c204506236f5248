"""All queues of ours at one SMP router, with one command (ntf.md 4.9; docs/direct-notifications.md)."""

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
"""After the loss of our service, and before a difference between the router's queues and ours is believed."""

logger = logging.getLogger(__name__)


class ServiceSubscription:
    """`wake` is called when `wanted` becomes true; `again` when everything is to be looked at once more, later."""

    def __init__(self, router: SmpRouterInUse, wake: Callable[[], None], again: Callable[[], None]) -> None:
        self._router = router
        self._state = router.state
        self._wake = wake
        self._again = again
        self.wanted = False
        self.current: OwnService | None = None
        """What we are in the session, as soon as we know it."""
        self._lost = False
        """It will be wanted soon; a router may say so as often as it likes."""
        self._differed = False
        self._registers = False
        """By direct notifications, until the SMP router refuses."""

    def session_begins(self, client: SmpClient) -> None:
        session = client.session.service
        self.current = None if session is None else CertifiedService(session.service_id)
        self._registers = client.direct and self._router.network.direct is not None
        self._differed = False

    def needed(self) -> None:
        """A queue of ours came without being subscribed to: NSSUB, if this session could and has not had it."""
        if self._registers and self.current is None:
            self._want()

    def ended(self, service_id: bytes) -> None:
        """ENDS: another connection of our service has its queues now. They are taken back, but not at once.

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
        """NSSUB or NSUBS, if we are somebody there; False if all queues are to be subscribed one by one."""
        self._state.pending_service = 0
        service, registration = self.current, self._router.network.direct
        if not self._registers:
            if used.service_id is None and (service is None or not used.associated_count):
                return False
            if service is None or used.service_id not in (None, service.service_id):
                await self._forget("this session is not one of the service")
                return False
        self._state.pending_service = used.associated_count
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
        """NSSUB, and NSRV before it if we are not known there."""
        self.current, answer = await registration.service(client, self._router.location, used)
        service_id = self.current.service_id
        if service_id != used.service_id:
            if used.service_id is not None:
                await self._forget("the SMP router knows us by another id now")
            await self._router.until_stored(
                lambda: self._router.store.subscribed(self._router.location, [], service_id)
            )
        return answer

    def _compare(self, used: UsedRouter, answer: ServedQueues) -> None:
        """The router's idea of our queues and ours; the pipeline repairs what differs.

        A queue that a packet brings is here before it is there: of direct notifications it is asked a second time.
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
        if differs:
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
