"""The certificates that our service shows to SMP routers.

A certificate for each SMP router tells none of them who we are, so they cannot link our subscriptions with each other
or with our address (v7.md 6.2). The router's own certificate, which all SMP routers see, is for installations from
before, and for routers where we are registered for direct notifications: our service id there belongs to it. An
operator can end the services that share it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from tocsin.crypto.certificates import REFERENCE_LIFETIME, make_self_signed
from tocsin.crypto.credentials import CertificateAlgorithm, Credentials, new_private_key
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.operate.clock import Clock
from tocsin.protocol.addresses import RouterLocation
from tocsin.transport.client_sessions import ServiceIdentity

NAME: Final = "simplex"
BEFORE: Final = timedelta(hours=25)
"""The certificate is valid from this long before its creation, for peers with another clock."""


def new_service_credentials(now: datetime) -> Credentials:
    """Make a self-signed certificate. Only its key distinguishes it from certificates of other routers."""
    return make_self_signed(
        NAME,
        new_private_key(CertificateAlgorithm.ED25519),
        now=now - BEFORE,
        serial=1,
        lifetime=REFERENCE_LIFETIME + BEFORE,
    )


class ServiceCertificates:
    """Chooses a certificate for each SMP router."""

    def __init__(
        self,
        store: NtfStore,
        shared: ServiceIdentity,
        clock: Clock,
        *,
        always: bool,
        separate: bool,
        direct: bool,
    ) -> None:
        """`always` shows a certificate to every router, `separate` another one to each.

        `direct` shows the shared one to routers that once offered direct notifications and do not now.
        """
        self._store = store
        self._shared = shared
        self._clock = clock
        self._always = always
        self._separate = separate
        self._direct = direct

    async def choose(self, router: RouterLocation) -> ServiceIdentity | None:
        """Return the certificate to show to an SMP router. Raises StoreError."""
        if self._always and not self._separate:
            return self._shared
        # Nothing is counted here: each start waits for this, and a router may have millions of queues.
        if not self._always:
            shows = self._direct and (await self._store.associations(router)).any
            return self._shared if shows else None
        if (own := await self._store.service_credentials(router)) is not None:
            return replace(self._shared, credentials=own)
        service_id, any_associated = await self._store.associations(router)
        if service_id is not None or any_associated:
            return self._shared
        made = new_service_credentials(datetime.fromtimestamp(self._clock.now(), UTC))
        return replace(self._shared, credentials=made)

    async def accepted(self, router: RouterLocation, shown: ServiceIdentity) -> None:
        """Keep a certificate that an SMP router accepted, for the next time. Raises StoreError."""
        if shown != self._shared and await self._store.service_credentials(router) != shown.credentials:
            await self._store.set_service_credentials(router, shown.credentials)

    async def registered(self, router: RouterLocation) -> None:
        """Forget the router's certificate, because we are registered there under our own name. Raises StoreError."""
        if self._separate and await self._store.service_credentials(router) is not None:
            await self._store.set_service_credentials(router, None)


@dataclass(slots=True)
class SharedServices:
    """SMP routers that were found."""

    moved: int = 0
    queues: int = 0
    """Queues of the routers that move."""
    direct: int = 0
    separate: int = 0


async def end_shared_services(store: NtfStore, *, dry_run: bool) -> SharedServices:
    """Forget services of the shared certificate, unless queues of direct notifications need them. Raises StoreError.

    Their queues become INACTIVE, and the starting router subscribes to them with the new certificate.
    """
    found = SharedServices()
    for used in await store.used_routers():
        if await store.service_credentials(used.location) is not None:
            found.separate += 1
        elif used.direct_count:
            found.direct += 1
        elif used.service_id is not None or used.associated_count:
            found.moved += 1
            found.queues += used.associated_count
            if not dry_run:
                await store.forget_service(used.location)
    return found
