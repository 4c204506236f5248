"""Our own pair of routers: the SMP router keeps a notification until the NTF router has stored it, and no longer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.doubles.ntf_harness import ntf_settings
from tests.doubles.ntf_world import Chat, SmpPlace, World, becomes, reconnected, subscribed_chat
from tests.doubles.smp_harness import SmpHarness, SmpTestClient, until
from tocsin.ntf_router.subscriber.notifications import Acknowledgements
from tocsin.protocol.direct.dialects import is_direct
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.smp_router.settings.settings import SmpDirectSettings

FOR_EVER: dict[str, Any] = {
    "notification_confirm_after": 3600.0,
    "notification_interval": 0.02,
    "message_quota": 64,
}
ACTIVE = SubscriptionState.ACTIVE


def services(used: bool) -> dict[str, Any]:
    """An NTF router that subscribes with its certificate, or queue by queue."""
    return {"subscriber": replace(ntf_settings().subscriber, use_service_credentials=used)}


async def chats_at(smp: SmpHarness, device: Any, count: int) -> list[Chat]:
    recipient = await smp.connect()
    return [await subscribed_chat(smp, device, recipient, ACTIVE) for _ in range(count)]


async def send(sender: SmpTestClient, chats: list[Chat], times: int) -> int:
    for _ in range(times):
        for chat in chats:
            await chat.send(sender)
    return times * len(chats)


@pytest.mark.parametrize("service", [False, True])
async def test_what_is_stored_is_acknowledged_at_once(world: World, service: bool) -> None:
    """Whichever way the queues are subscribed: the SMP router would keep it for an hour otherwise."""
    async with SmpPlace().running(**FOR_EVER) as smp, world.ntf(**services(service)) as ntf:
        chats = await chats_at(smp, await ntf.active_device(), 2)
        sent = await send(await smp.connect(), chats, 3)
        await until(lambda: smp.running.state.counters.notifications_confirmed == sent)
        assert not smp.store.notifiers_with_notifications()
        notified = [each for each in smp.running.router.peers if each.notifications_sent]
        assert all(is_direct(each.session.dialect) for each in notified)
        assert [each.session.service is not None for each in notified] == [service]
        assert (await ntf.settled(sent)).received == sent


@pytest.mark.parametrize("service", [False, True])
async def test_a_restart_repeats_nothing(world: World, service: bool) -> None:
    """The reference's NTF server would push each of them again; ours would have to recognise them."""
    async with SmpPlace().running(**FOR_EVER) as smp:
        async with world.ntf(**services(service)) as ntf:
            device = await ntf.active_device()
            chats = await chats_at(smp, device, 2)
            sent = await send(await smp.connect(), chats, 4)
            await ntf.settled(sent)
        async with world.ntf(**services(service)) as ntf:
            device = await reconnected(device, ntf)
            for chat in chats:
                await becomes(device, chat, ACTIVE)
            sent += await send(await smp.connect(), chats, 1)
            assert (await ntf.settled(sent)).received == sent
            assert smp.running.state.counters.notifications_repeated == 0
            assert ntf.running.state.counters.notifications_repeated == 0


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_what_a_killed_router_had_stored_is_recognised_whichever_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """It was killed before it could acknowledge anything, and its memory is gone."""

    async def never(_acknowledgements: Acknowledgements) -> None:
        return

    async with SmpPlace().running(**FOR_EVER) as smp:
        with monkeypatch.context() as killed:
            killed.setattr(Acknowledgements, "run", never)
            killed.setattr(Acknowledgements, "finish", never)
            async with world.ntf() as ntf:
                device = await ntf.active_device()
                chats = await chats_at(smp, device, 3)
                sent = await send(await smp.connect(), chats, times)
                before = await ntf.settled(sent)
        async with world.ntf() as ntf:
            await until(lambda: ntf.running.state.counters.notifications_repeated == sent)
            assert await ntf.settled(sent) == before
            await until(lambda: not smp.store.notifiers_with_notifications())


async def test_without_direct_notifications_a_router_that_stops_in_order_gets_nothing_again(
    world: World,
) -> None:
    direct = SmpDirectSettings(enabled=False)
    async with SmpPlace().running(direct=direct, **FOR_EVER) as smp:
        async with world.ntf() as ntf:
            device = await ntf.active_device()
            chats = await chats_at(smp, device, 2)
            sent = await send(await smp.connect(), chats, 2)
            await ntf.settled(sent)
            assert len(smp.store.notifiers_with_notifications()) == 2
        await until(lambda: not smp.store.notifiers_with_notifications())
        assert smp.running.state.counters.notifications_repeated == 0
