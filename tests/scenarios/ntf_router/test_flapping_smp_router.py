"""An SMP router that comes and goes: suspected to make the store log grow, and refuted."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.doubles.ntf_harness import ntf_router, ntf_settings
from tests.doubles.ntf_world import SmpPlace, becomes, subscribed_chat
from tests.doubles.smp_harness import until
from tocsin.ntf_router.store.logs.store_files import open_ntf_store
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.smp_router.settings.settings import SmpDirectSettings

FLAPS = 12


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize("service", [False, True], ids=["queues", "service"])
@pytest.mark.parametrize("direct", [False, True], ids=["usual", "direct"])
async def test_a_flapping_smp_router_does_not_make_the_logs_grow(
    tmp_path: Path, service: bool, direct: bool
) -> None:
    """After the first session, which associates the queues, another one writes nothing."""
    store, place = open_ntf_store(tmp_path), SmpPlace()
    subscriber = replace(ntf_settings().subscriber, use_service_credentials=service)
    async with ntf_router(store, subscriber=subscriber) as ntf:
        device = await ntf.active_device()
        sizes = []
        async with place.running(direct=SmpDirectSettings(enabled=direct)) as smp:
            chats = [
                await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
                for _ in range(5)
            ]
        for _ in range(FLAPS):
            await until(
                lambda: not any(each.state.connected for each in ntf.running.subscribers.routers.values())
            )
            async with place.running(direct=SmpDirectSettings(enabled=direct)):
                for chat in chats:
                    await becomes(device, chat, SubscriptionState.ACTIVE)
            sizes.append(size_of(tmp_path))
    growth = [after - before for before, after in pairwise(sizes)]
    assert set(growth) == {0}, growth
    await store.close()
