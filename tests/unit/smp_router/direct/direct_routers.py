"""An SMP router with direct notifications and a client of it, next to an NTF router, or to one that is away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from tests.doubles.fake_ntf_forwardee import Behaviour, FakeNtfForwardee, fake_ntf_forwardee
from tests.doubles.smp_direct import Wish, connect_direct, direct_settings, ntf_credentials
from tests.doubles.smp_harness import Asked, Queue, SmpHarness, SmpTestClient, smp_router
from tocsin.crypto.credentials import Credentials
from tocsin.protocol.addresses import RouterLocation, Scheme
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.direct.smp_commands import AssociateQueue
from tocsin.smp_router.settings.settings import SmpDirectSettings

DIRECT: Final = direct_settings()
NOWHERE: Final = RouterLocation(("127.0.0.1",), "1", bytes(32))
"""Nobody listens there."""


@asynccontextmanager
async def direct_router(
    settings: SmpDirectSettings = DIRECT, **options: Any
) -> AsyncIterator[tuple[SmpHarness, SmpTestClient]]:
    async with smp_router(direct=settings, **options) as router:
        yield router, await connect_direct(router)


@asynccontextmanager
async def both_routers(
    behaviour: Behaviour = PacketFate.ACCEPTED,
    *,
    credentials: Credentials | None = None,
    direct: bool = True,
    settings: SmpDirectSettings = DIRECT,
    **options: Any,
) -> AsyncIterator[tuple[FakeNtfForwardee, SmpHarness, SmpTestClient]]:
    """The first arguments are of the NTF router, the others of the SMP router."""
    async with (
        fake_ntf_forwardee(behaviour, credentials=credentials, direct=direct) as forwardee,
        direct_router(settings, **options) as (router, client),
    ):
        yield forwardee, router, client


async def router_away() -> RouterLocation:
    """Where an NTF router was."""
    async with fake_ntf_forwardee(credentials=ntf_credentials()) as gone:
        return gone.location


def router_back(
    location: RouterLocation,
    behaviour: Behaviour = PacketFate.ACCEPTED,
    *,
    credentials: Credentials | None = None,
) -> AbstractAsyncContextManager[FakeNtfForwardee]:
    """The NTF router that was there."""
    port = location.port_number(Scheme.NTF)
    return fake_ntf_forwardee(behaviour, credentials=credentials or ntf_credentials(), port=port)


def association(wish: Wish, queue: Queue) -> Asked:
    """NSKEY, to be sent without waiting for its answer."""
    return Asked(AssociateQueue(wish.subscription), queue.recipient_id, queue.key, wish.corr_id)
