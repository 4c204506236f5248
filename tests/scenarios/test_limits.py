"""Everything has a bound: after a flood no collection of a router is larger than its limit, or without one."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.doubles.collections import growth, sizes_of
from tests.doubles.ntf_harness import NtfHarness, ntf_router, queue_at
from tests.doubles.routers import HOST
from tests.doubles.smp_direct import NtfIdentity, Wish, connect_direct, direct_settings, ntf_credentials
from tests.doubles.smp_harness import OK, QUOTA, SmpHarness, ed25519, smp_router, x25519
from tests.doubles.web_push_service import STALL, WebPushPhone, WebPushService
from tests.unit.push.fcm.stage import REGISTRATION, HeldTime, account_of, fcm_settings
from tests.unit.push.webpush.stage import KEY, web_push_settings
from tocsin.ntf_router.settings.keys import NTF_KEYS
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.responses import TokenRegistered
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ntf.token_commands import RegisterToken
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.smp.proxy_commands import RequestProxySession
from tocsin.push.fake.behaviours import Delay
from tocsin.push.fake.fcm import running_fake_fcm
from tocsin.push.fcm.client import FcmProvider
from tocsin.push.provider import Provider
from tocsin.push.webpush.client import WebPushProvider
from tocsin.smp_router.session import service_records
from tocsin.smp_router.settings.keys import SMP_KEYS
from tocsin.smp_router.settings.settings import SmpProxySettings
from tocsin.transport.resolver import shared_resolver
from tools import reference_pages
from tools.limits import NTF_LIMITS, SMP_LIMITS, Limit, limit_of

QUEUES: Final = 60
RELAYS: Final = 10
PACKETS: Final = 12
SERVICES: Final = 10
TOKENS: Final = 24
HOSTS: Final = [f"h{number}.test" for number in range(30)]
SUBSCRIPTIONS: Final = 48
NOT_CERTIFIED: Final = [f"x{number}.test" for number in range(12)]
"""Names for which the push service has no certificate."""
PROXY: Final = SmpProxySettings(connect_timeout=1.0, public_relays_only=False, max_relays=RELAYS)


async def flood_smp(router: SmpHarness) -> None:
    """More of everything than the settings allow."""
    clients = [await router.connect() for _ in range(12)]
    queues = []
    for client in clients[:5]:
        for _ in range(12):
            queue = await client.new_queue()
            notifier = await client.enable_notifications(queue)
            for _ in range(7):
                await client.send_message(queue, b"hello", notify=True)
            queues.append((queue, notifier))
    with pytest.raises(AssertionError, match="QUOTA"):
        await clients[0].new_queue()
    for subscriber in (clients[6], clients[7]):
        for queue, notifier in queues:
            await subscriber.subscribe_notifier(notifier)
            await subscriber.subscribe(queue)
    for number in range(3 * RELAYS):
        nowhere = RouterLocation((f"127.0.3.{number + 1}",), "1", bytes(32))
        await clients[8].ask(RequestProxySession(nowhere))
        unknown = RouterLocation((f"host{number}.invalid",), "1", bytes(32))
        await clients[8].ask(RequestProxySession(unknown))
    for number in range(2 * SERVICES):
        await router.connect_service(str(number))


async def flood_with_packets(router: SmpHarness) -> None:
    """Packets for NTF routers that do not answer, and NTF routers that register."""
    device = await connect_direct(router)
    refused = 0
    for number in range(2 * PACKETS):
        wish = Wish(RouterLocation((HOST,), "1", bytes([number]) * 32))
        queue = await device.new_queue()
        answer = await wish.ask(device, queue)
        refused += isinstance(answer, Refused)
    assert refused == PACKETS
    for number in range(12):
        await NtfIdentity(ntf_credentials(str(number))).subscribed(router)


def beyond(limits: tuple[Limit, ...], settings: Any, grown: dict[str, int]) -> dict[str, str]:
    """What has no row in the table, or more than its row allows."""
    found = {}
    for name, size in grown.items():
        limit = limit_of(limits, name)
        if limit is None:
            found[name] = f"{size}, and no limit is known"
        elif limit.bound is not None and size > limit.bound(settings):
            found[name] = f"{size} instead of {limit.bound(settings)}"
    return found


async def test_no_collection_of_an_smp_router_grows_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_records, "MAX_UNSTORED", SERVICES)
    async with smp_router(proxy=PROXY, max_queues=QUEUES, end_interval=3600.0) as router:
        before = sizes_of(router.running, shared_resolver())
        await flood_smp(router)
        after = sizes_of(router.running, shared_resolver())
        assert len(growth(before, after)) > 10
        assert beyond(SMP_LIMITS, router.running.state.settings, growth(before, after)) == {}
        assert len(router.running.state.unstored_services) == SERVICES
        assert router.running.router.proxy.relays.remembered_failures <= RELAYS


async def test_no_collection_for_direct_notifications_grows_beyond_its_limit() -> None:
    direct = direct_settings(max_packets=PACKETS, answer_wait=0.0, retry_initial=60.0, retry_maximum=60.0)
    async with smp_router(direct=direct) as router:
        before = sizes_of(router.running, shared_resolver())
        await flood_with_packets(router)
        grown = growth(before, sizes_of(router.running, shared_resolver()))
        assert "SmpDirectTable._packets" in grown
        assert beyond(SMP_LIMITS, router.running.state.settings, grown) == {}


async def test_no_collection_of_an_ntf_router_grows_beyond_its_limit() -> None:
    async with (
        ntf_router(max_tokens=TOKENS, max_subscriptions=SUBSCRIPTIONS) as ntf,
        smp_router() as smp,
    ):
        before = sizes_of(ntf.running, shared_resolver())
        client = await smp.connect()
        for number in range(12):
            device = await ntf.active_device()
            queue = await client.new_queue()
            notifier = await client.enable_notifications(queue)
            await device.subscribe(queue_at(smp, notifier), notifier.key)
            assert await client.send_message(queue, b"hello", notify=True) == OK
            await (await ntf.device()).register()
            for host in range(3):
                nowhere = RouterLocation((f"127.0.{number}.{host + 1}",), "1", bytes([number]) * 32)
                await device.subscribe(NotifierQueue(nowhere, os.urandom(24)), notifier.key)
        for _ in range(3):
            late = await ntf.device()
            assert await late.client.ask(late.register_command(), key=late.key) == QUOTA
            command = device.subscribe_command(NotifierQueue(nowhere, os.urandom(24)), notifier.key)
            assert await device.client.ask(command, key=device.key) == QUOTA
        grown = growth(before, sizes_of(ntf.running, shared_resolver()))
        assert "NtfRouter.connections" in grown
        assert grown["TokenTable._tokens"] == TOKENS
        assert (await ntf.store.counts()).subscriptions == SUBSCRIPTIONS
        assert beyond(NTF_LIMITS, ntf.running.state.settings, grown) == {}


def test_settings_and_metrics_of_the_table_exist() -> None:
    metrics = {line.name for lines in reference_pages.metrics().values() for line in lines}
    for limits, keys in ((SMP_LIMITS, SMP_KEYS), (NTF_LIMITS, NTF_KEYS)):
        names = {key.name for key in keys}
        assert {limit.setting for limit in limits if limit.setting} - names == set()
        assert {metric for limit in limits for metric in limit.metrics} - metrics == set()


def test_a_collection_is_in_one_row_only() -> None:
    for limits in (SMP_LIMITS, NTF_LIMITS):
        named = [name for limit in limits for name in limit.collections]
        assert len(named) == len(set(named))


def test_a_collection_without_a_limit_is_found() -> None:
    assert beyond(SMP_LIMITS, None, {"Peer.forgotten": 9}) == {"Peer.forgotten": "9, and no limit is known"}


@pytest.mark.parametrize("of_google", ["messages", "access tokens"])
async def test_no_collection_of_providers_grows_beyond_its_limit(tmp_path: Path, of_google: str) -> None:
    """Many push services do not answer, or cannot be reached, and Google does not answer either."""
    async with (
        WebPushService(tmp_path).running(HOSTS) as service,
        running_fake_fcm(tmp_path / "google", now=HeldTime()) as fcm,
    ):
        google = replace(fcm_settings(fcm), key_file=Path("account.json"))
        services = web_push_settings(ca_file=service.ca_file)
        firebase = FcmProvider(google, account_of(fcm), HeldTime())
        web_push = WebPushProvider(services, KEY, service.find)
        providers: dict[PushProvider, Provider] = {PushProvider.FCM: firebase, PushProvider.WEBPUSH: web_push}
        async with ntf_router(providers=providers, webpush=services, fcm=google) as ntf:
            before = sizes_of(ntf.running, shared_resolver())
            behave = fcm.behave if of_google == "messages" else fcm.behave_tokens
            behave(Delay(3600.0), times=None)
            service.behaviours.extend([STALL] * 1000)
            for host in (*HOSTS, *HOSTS, *HOSTS[:1] * 30, *NOT_CERTIFIED):
                endpoint = WebPushPhone(service, host, f"/{os.urandom(8).hex()}").token
                await register(ntf, DeviceToken(PushProvider.WEBPUSH, endpoint))
            for number in range(len(HOSTS)):
                await register(ntf, DeviceToken(PushProvider.FCM, b"%d:" % number + REGISTRATION))
            expected = {
                *("ControlPushes._sent", "WebPushProvider._lanes", "WebPushProvider._tasks"),
                *("Reputations._outages", "HostLane._waiting"),
                "Streams.exchanges" if of_google == "messages" else "FcmProvider._unauthorized",
            }
            grown = growth(before, sizes_of(ntf.running, shared_resolver()))
            async with asyncio.timeout(10):
                while not expected <= set(grown):
                    await asyncio.sleep(0.02)
                    grown |= growth(before, sizes_of(ntf.running, shared_resolver()))
            assert beyond(NTF_LIMITS, ntf.running.state.settings, grown) == {}
        await firebase.close()
        await web_push.close()


async def register(ntf: NtfHarness, device_token: DeviceToken) -> None:
    client, key = await ntf.connect(), ed25519()
    answer = await client.ask(RegisterToken(device_token, key.public, x25519().public), b"", key)
    assert isinstance(answer, TokenRegistered)
    await client.close()
