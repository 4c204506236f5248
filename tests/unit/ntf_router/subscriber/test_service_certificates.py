"""Choosing the certificate of a connection. Nothing is counted for it, because each start waits for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from tests.doubles.routers import make_credentials
from tests.doubles.smp_harness import HeldClock
from tocsin.crypto.credentials import Credentials
from tocsin.ntf_router.store.records import Associations
from tocsin.ntf_router.subscriber.service_certificates import ServiceCertificates
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.sessions import ServiceRole
from tocsin.transport.client_sessions import ServiceIdentity

SMP: Final = RouterLocation(("smp.example.com",), "", bytes(32))
SHARED: Final = ServiceIdentity(make_credentials(), ServiceRole.NOTIFIER)
NOTHING: Final = Associations(None, any=False)
A_SERVICE: Final = Associations(b"service", any=False)
QUEUES: Final = Associations(None, any=True)


class UncountedStore:
    """Knows one SMP router, and has no method that counts its queues."""

    def __init__(self, associations: Associations, own: Credentials | None = None) -> None:
        self._associations = associations
        self._own = own

    async def associations(self, _router: RouterLocation) -> Associations:
        return self._associations

    async def service_credentials(self, _router: RouterLocation) -> Credentials | None:
        return self._own


async def chosen(
    associations: Associations, own: Credentials | None = None, **settings: bool
) -> ServiceIdentity | None:
    store: Any = UncountedStore(associations, own)
    return await ServiceCertificates(store, SHARED, HeldClock(), **settings).choose(SMP)


@pytest.mark.parametrize("associations", [NOTHING, A_SERVICE, QUEUES])
async def test_without_services_only_queues_that_are_left_of_direct_notifications_need_the_certificate(
    associations: Associations,
) -> None:
    needed = await chosen(associations, always=False, separate=False, direct=True)
    assert needed == (SHARED if associations.any else None)
    assert await chosen(associations, always=False, separate=False, direct=False) is None


@pytest.mark.parametrize("associations", [NOTHING, A_SERVICE, QUEUES])
async def test_with_a_certificate_for_each_router_the_shared_one_stays_where_it_has_a_service(
    associations: Associations,
) -> None:
    shown = await chosen(associations, always=True, separate=True, direct=False)
    assert shown is not None
    assert (shown == SHARED) == (associations is not NOTHING)


async def test_a_router_with_a_certificate_of_its_own_sees_that_one() -> None:
    own = make_credentials()
    shown = await chosen(A_SERVICE, own, always=True, separate=True, direct=False)
    assert shown == replace(SHARED, credentials=own)
