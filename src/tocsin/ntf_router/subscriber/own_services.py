"""Services of an NTF router at SMP routers, which subscribe to many queues with one command.

With direct notifications the router registers (NSRV) and subscribes with its own key (NSSUB). Without them it may
subscribe with certificates (NSUBS). Both give it the same service id, as long as both show the same certificate.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from tocsin.clients import SmpClient
from tocsin.clients.requests import RouterRefused
from tocsin.ntf_router.direct.keys import DirectKeys
from tocsin.ntf_router.store.records import UsedRouter
from tocsin.ntf_router.store.retry import until_stored
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.registration import NtfRouterCredentials
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.smp.notifier_commands import SubscribeServiceNotifications
from tocsin.protocol.smp.responses import ServiceSubscribed
from tocsin.transport.router_sessions import RouterIdentity


@dataclass(frozen=True, slots=True)
class ServedQueues:
    """The queues of our service, as the SMP router reports them."""

    count: int
    ids_hash: bytes


class OwnService(Protocol):
    """Our service in one session."""

    @property
    def service_id(self) -> bytes: ...

    @property
    def ntf_router_id(self) -> bytes | None:
        """The id that NSUB names to associate a queue with us. Sessions with certificates do not need it."""

    async def subscribe(self, client: SmpClient, used: UsedRouter) -> ServedQueues:
        """Subscribe to all queues of our service. Raises as `RouterClient.ask`."""


@dataclass(frozen=True, slots=True)
class CertifiedService:
    """A service known by the certificates of the handshake (NSUBS)."""

    service_id: bytes
    ntf_router_id: bytes | None = None

    async def subscribe(self, client: SmpClient, used: UsedRouter) -> ServedQueues:
        command = SubscribeServiceNotifications(used.associated_count, used.associated_hash)
        answer = await client.ask(ServiceSubscribed, command, self.service_id)
        return ServedQueues(answer.count, answer.ids_hash)


@dataclass(frozen=True, slots=True)
class RegisteredService:
    """A service registered for direct notifications (NSSUB)."""

    service_id: bytes
    keys: DirectKeys

    @property
    def ntf_router_id(self) -> bytes | None:
        return self.service_id

    async def subscribe(self, client: SmpClient, used: UsedRouter) -> ServedQueues:
        key = self.keys.auth.key
        answer = await client.subscribe_ntf_router(
            self.service_id, key, used.associated_count, used.associated_hash
        )
        return ServedQueues(answer.count, answer.ids_hash)


class DirectRegistration:
    """Registers this NTF router at SMP routers."""

    def __init__(self, keys: DirectKeys, identity: RouterIdentity) -> None:
        self._keys = keys
        self._identity = identity
        self._location: RouterLocation | None = None
        self._located = asyncio.Event()

    def listening_at(self, location: RouterLocation) -> None:
        """Set the address that we register at SMP routers."""
        self._location = location
        self._located.set()

    async def service(
        self, client: SmpClient, router: RouterLocation, used: UsedRouter | None
    ) -> tuple[RegisteredService, ServedQueues]:
        """Register if needed, and subscribe. One command suffices where we are known. Raises as `RouterClient.ask`."""
        await self._located.wait()  # the auth key depends on the address
        used = used or UsedRouter(router, None, 0, bytes(16), 0)
        if used.service_id is not None:
            known = RegisteredService(used.service_id, self._keys)
            try:
                return known, await known.subscribe(client, used)
            except RouterRefused as error:
                if error.error is not ErrorCode.AUTH:
                    raise
        # Another instance of a fleet may have made a newer auth key, and an older one cannot take its place.
        await until_stored("reading the keys for direct notifications", self._keys.rotate)
        registered = RegisteredService(await self._register(client, router), self._keys)
        return registered, await registered.subscribe(client, used)

    async def _register(self, client: SmpClient, router: RouterLocation) -> bytes:
        assert self._location is not None
        auth = self._keys.auth
        credentials = NtfRouterCredentials.signed(
            self._location,
            self._identity.credentials.chain,
            auth.key.public,
            auth.issued_at,
            smp_identity=router.key_hash,
            sign=self._identity.signing_key.sign,
        )
        return await client.register_ntf_router(credentials, auth.key)
