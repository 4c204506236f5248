"""An NTF router and an SMP router of different versions: the newest common one is spoken, and pushes come."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from tests.doubles.ntf_harness import ntf_settings, until
from tests.doubles.ntf_world import SmpPlace, World, subscribed_chat
from tocsin.ntf_router.settings.settings import HIGHEST_SMP_VERSION
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.protocol.smp.versions import SERVICE_CERTS_VERSION

VERSIONS = (6, 10, 12, SERVICE_CERTS_VERSION, 18, HIGHEST_SMP_VERSION)
MIXES = [
    (ours, theirs) for ours, theirs in product(VERSIONS, VERSIONS) if 18 in (ours, theirs) or ours == theirs
]


@pytest.mark.parametrize(("ours", "theirs"), MIXES)
async def test_the_newest_common_version_is_spoken(memory_world: World, ours: int, theirs: int) -> None:
    """Issue 18, row 7: the versions of the NTF router as a client could not be set."""
    subscriber = replace(ntf_settings().subscriber, highest_version=ours)
    place, world = SmpPlace(), memory_world
    async with place.running(highest_version=theirs) as smp, world.ntf(subscriber=subscriber) as ntf:
        device = await ntf.active_device(b"abcd")
        spoken = min(theirs, 18)
        recipient, sender = await smp.connect(spoken), await smp.connect(spoken)
        chat = await subscribed_chat(smp, device, recipient, SubscriptionState.ACTIVE)
        others = {smp.peer_of(each) for each in (recipient, sender)}
        [peer] = [each for each in smp.running.router.peers if each not in others]
        assert peer.session.version == min(ours, theirs)
        assert (peer.session.service is not None) == (min(ours, theirs) >= SERVICE_CERTS_VERSION)
        await chat.send(sender)
        assert [item.queue for item in await device.notifications()] == [chat.address]


async def test_a_router_without_a_common_version_is_not_used(memory_world: World) -> None:
    subscriber = replace(ntf_settings().subscriber, lowest_version=17)
    async with (
        SmpPlace().running(highest_version=16) as smp,
        memory_world.ntf(subscriber=subscriber) as ntf,
    ):
        device = await ntf.active_device(b"abcd")
        chat = await subscribed_chat(smp, device, await smp.connect(16))
        [router] = ntf.running.subscribers.routers.values()
        await until(lambda: "VERSION" in router.state.last_error)
        assert await device.subscription_status(chat.subscription_id) == SubscriptionState.NEW
