"""Direct notifications at the NTF router: keys for devices, and packets that SMP routers hand over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.doubles.direct_devices import DirectDevice, direct_client, direct_device, forward
from tests.doubles.failing_store import FailingStore
from tests.doubles.ntf_harness import NtfHarness, ntf_router, ntf_settings, until
from tests.doubles.ntf_world import StoreOpening
from tests.doubles.routers import HOST, make_credentials
from tests.doubles.smp_harness import ed25519, x25519
from tocsin.agent.token.router_inquiries import ask_vapid_key
from tocsin.clients import ClientSettings
from tocsin.crypto.keys import Ed448PrivateKey, Ed25519PrivateKey, private_key_from_der
from tocsin.crypto.web_push import VapidKey
from tocsin.errors import AgentError, HandshakeRefused, RemoteProtocolError, TransportError
from tocsin.ntf_router import running_router
from tocsin.ntf_router.session.rates import RateLimit, RateTable
from tocsin.ntf_router.settings.settings import NtfDirectSettings, NtfSettings
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.direct.ntf_keys import DAY
from tocsin.protocol.direct.ntf_messages import ForwardPacket, TokenCheckedWithKey, TokenRegisteredWithKey
from tocsin.protocol.direct.packets import PacketFate, PacketKind
from tocsin.protocol.direct.vapid_keys import AskVapidKey, SignedVapidKey
from tocsin.protocol.error_codes import CommandFault, StoreFault
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ntf.token_commands import CheckToken, DeleteToken
from tocsin.protocol.router_answers import Refused

SMP = RouterLocation(("127.0.0.1",), "9", bytes(range(32)))
"""Nobody listens there."""
QUEUE = NotifierQueue(SMP, b"n" * 24)
ON = NtfDirectSettings(enabled=True)
DIRECT: dict[str, Any] = {"direct": ON, "public_hosts": (HOST,)}


@asynccontextmanager
async def direct_router(**changes: Any) -> AsyncIterator[NtfHarness]:
    async with ntf_router(**{**DIRECT, **changes}) as ntf:
        yield ntf


@pytest.fixture
async def ntf() -> AsyncIterator[NtfHarness]:
    async with direct_router() as running:
        yield running


@pytest.fixture
async def device(ntf: NtfHarness) -> DirectDevice:
    return await direct_device(ntf)


async def handed_over(ntf: NtfHarness, packet: bytes) -> PacketFate:
    return await forward(await direct_client(ntf), packet)


# The key for Web Push


def address_of(ntf: NtfHarness) -> RouterAddress:
    return RouterAddress(Scheme.NTF, ntf.location)


async def test_the_key_for_web_push_is_told_signed_by_the_identity() -> None:
    key, settings = VapidKey.from_scalar(b"\x11" * 32).public, ClientSettings()
    async with direct_router(vapid_key=key) as ntf:
        assert await ask_vapid_key(address_of(ntf), settings) == key
        answer = await (await direct_client(ntf)).ask(AskVapidKey())
        assert isinstance(answer, SignedVapidKey)
        now = datetime.now(UTC)
        identity, chain = ntf.credentials.fingerprint, ntf.credentials.chain
        assert answer.is_signed_by(chain, identity, now)
        assert not replace(answer, public=VapidKey.from_scalar(b"\x12" * 32).public).is_signed_by(
            chain, identity, now
        )
        other = make_credentials()
        assert not answer.is_signed_by(other.chain, other.fingerprint, now)
        assert not answer.is_signed_by(chain, other.fingerprint, now)
        plain = await ntf.connect()
        assert await plain.ask(AskVapidKey()) == Refused(CommandFault.UNKNOWN)
    async with direct_router() as without:
        assert await (await direct_client(without)).ask(AskVapidKey()) == Refused(CommandFault.PROHIBITED)
        with pytest.raises(AgentError, match="has no Web Push"):
            await ask_vapid_key(address_of(without), settings)
    async with ntf_router(vapid_key=key) as plain_router:
        with pytest.raises(AgentError, match="has no direct notifications"):
            await ask_vapid_key(address_of(plain_router), settings)


async def test_a_key_that_another_router_signed_is_refused() -> None:
    key = VapidKey.from_scalar(b"\x11" * 32).public
    other = make_credentials()
    signing = private_key_from_der(other.private_key)
    assert isinstance(signing, Ed448PrivateKey | Ed25519PrivateKey)
    async with direct_router(vapid_key=key) as ntf:
        stolen = SignedVapidKey.signed(key, ntf_identity=ntf.credentials.fingerprint, sign=signing.sign)
        assert ntf.running.router._direct is not None
        ntf.running.router._direct = replace(ntf.running.router._direct, vapid=stolen)
        ntf.running.router._table = ntf.running.router._command_table()
        with pytest.raises(RemoteProtocolError, match="not signed"):
            await ask_vapid_key(address_of(ntf), ClientSettings())


# Negotiation


async def test_it_is_on_by_default_and_needs_a_host_name() -> None:
    assert NtfSettings().direct.enabled
    assert not NtfSettings().public_hosts
    async with ntf_router() as plain:
        with pytest.raises((TransportError, HandshakeRefused)):
            await direct_client(plain)
        both = await plain.connect(alpn=("ntf+direct/1", "ntf/1"))
        assert await both.ask(ForwardPacket(bytes(448))) == Refused(CommandFault.UNKNOWN)
    async with ntf_router(public_hosts=("ntf.example",)) as named:
        assert await forward(await direct_client(named), bytes(448)) is PacketFate.UNKNOWN_KEY


async def test_sessions_without_it_get_what_they_always_got(ntf: NtfHarness) -> None:
    device = await ntf.active_device()
    assert type(await device.ask(CheckToken())).__name__ == "TokenChecked"
    assert await device.client.ask(ForwardPacket(bytes(448))) == Refused(CommandFault.UNKNOWN)
    assert await ntf.store.direct_keys()


# Keys


async def test_a_device_gets_the_key_at_registration_and_at_each_check(
    ntf: NtfHarness, device: DirectDevice
) -> None:
    assert device.offer.expires_at == ntf.clock.now() + 30 * DAY
    assert await device.newest_key() == device.offer
    again = await device.device.client.ask(device.device.register_command(), key=device.device.key)
    assert isinstance(again, TokenRegisteredWithKey)
    assert again.ntf_key == device.offer


async def test_a_new_key_comes_while_the_old_one_still_opens_packets(ntf: NtfHarness) -> None:
    keys = ntf.running.keys
    assert keys is not None
    device = await direct_device(ntf)
    ntf.clock.time += 8 * DAY
    await keys.rotate()
    newer = await device.newest_key()
    assert newer.key_id != device.offer.key_id
    assert await handed_over(ntf, device.packet(QUEUE)) is PacketFate.ACCEPTED
    ntf.clock.time += 23 * DAY
    await keys.rotate()
    other = NotifierQueue(SMP, b"m" * 24)
    assert await handed_over(ntf, device.packet(other)) is PacketFate.UNKNOWN_KEY
    device.offer = await device.newest_key()
    assert await handed_over(ntf, device.packet(other)) is PacketFate.ACCEPTED


async def test_the_expiry_of_a_key_is_exact(ntf: NtfHarness) -> None:
    """Issue 18, D2: keys turned every ten minutes only. Nothing turns them here but the time."""
    device = await direct_device(ntf)
    first = device.offer
    ntf.clock.time += 7 * DAY
    second = await device.newest_key()
    assert second.key_id != first.key_id
    assert second.expires_at == ntf.clock.now() + 30 * DAY
    ended = NotifierQueue(SMP, b"m" * 24)
    packet, again = device.packet(QUEUE), device.packet(ended)
    assert await handed_over(ntf, again) is PacketFate.ACCEPTED
    assert await handed_over(ntf, device.packet(ended, PacketKind.DISSOCIATE)) is PacketFate.ACCEPTED
    ntf.clock.time = first.expires_at - 1
    assert await handed_over(ntf, packet) is PacketFate.ACCEPTED
    assert await handed_over(ntf, again) is PacketFate.BAD_QUEUE
    ntf.clock.time = first.expires_at
    for recorded in (packet, again):
        assert await handed_over(ntf, recorded) is PacketFate.UNKNOWN_KEY
    device.offer = second
    assert await handed_over(ntf, device.packet(NotifierQueue(SMP, b"n" * 24))) is PacketFate.ACCEPTED
    ntf.clock.time = second.expires_at + 100 * DAY
    newest = await device.newest_key()
    assert newest.expires_at == ntf.clock.now() + 30 * DAY
    await ntf.store.forget_ended(ntf.clock.now())
    for recorded in (packet, again):
        assert await handed_over(ntf, recorded) is PacketFate.UNKNOWN_KEY


async def test_erased_keys_are_erased_from_the_store_too(ntf: NtfHarness) -> None:
    keys = ntf.running.keys
    assert keys is not None
    device = await direct_device(ntf)
    private = keys.packet_keys[device.offer.key_id].raw
    assert private in (await ntf.store.direct_keys() or b"")
    ntf.clock.time += 31 * DAY
    await keys.rotate()
    assert private not in (await ntf.store.direct_keys() or b"")


async def test_keys_survive_a_restart(open_store: StoreOpening) -> None:
    async with open_store() as store, direct_router(store=store) as ntf:
        device = await direct_device(ntf)
        auth = ntf.running.keys.auth if ntf.running.keys is not None else None
        kept: dict[str, Any] = {"credentials": ntf.credentials, "ports": ntf.running.ports}
    async with open_store() as store, direct_router(store=store, **kept) as ntf:
        assert ntf.running.keys is not None
        assert await ntf.running.keys.newest() == device.offer
        assert ntf.running.keys.auth == auth
        assert await handed_over(ntf, device.packet(QUEUE)) is PacketFate.ACCEPTED


# Packets


async def test_a_signed_packet_associates_a_queue(ntf: NtfHarness, device: DirectDevice) -> None:
    packet = device.packet(QUEUE)
    for _ in range(2):  # SMP routers repeat what they are not sure of
        assert await handed_over(ntf, packet) is PacketFate.ACCEPTED
    found = await ntf.store.subscription_of(QUEUE)
    assert found is not None
    assert (found.token_id, found.notifier_key) == (device.device.token_id, b"")
    assert found.status is SubscriptionState.ACTIVE
    assert SMP in ntf.running.subscribers.routers
    counters = ntf.running.state.counters
    assert (counters.direct_packets_accepted, counters.direct_queues_added) == (2, 1)


async def test_whoever_did_not_sign_gets_one_answer(ntf: NtfHarness, device: DirectDevice) -> None:
    other = await direct_device(ntf)
    x25519_only = await ntf.device()
    x25519_only.client = await direct_client(ntf)
    x25519_only.key = x25519()
    await x25519_only.activate()
    wrong = {
        "foreign token": device.packet(QUEUE, token_id=other.device.token_id),
        "unknown token": device.packet(QUEUE, token_id=bytes(24)),
        "key of another kind": device.packet(QUEUE, token_id=x25519_only.token_id),
        "foreign key": device.packet(QUEUE, key=ed25519()),
        "another NTF router": device.packet(QUEUE, ntf_identity=bytes(32)),
        "noise": device.packet(QUEUE)[:40] + bytes(408),
    }
    fates = {name: await handed_over(ntf, packet) for name, packet in wrong.items()}
    assert set(fates.values()) == {PacketFate.BAD_TOKEN}, fates
    assert await ntf.store.subscription_of(QUEUE) is None


async def test_a_token_that_is_not_active_gets_nothing(ntf: NtfHarness) -> None:
    device = await direct_device(ntf)
    await device.device.ask(DeleteToken())
    assert await handed_over(ntf, device.packet(QUEUE)) is PacketFate.BAD_TOKEN


async def test_a_queue_that_another_device_has_is_refused(ntf: NtfHarness, device: DirectDevice) -> None:
    thief = await direct_device(ntf)
    assert await handed_over(ntf, device.packet(QUEUE)) is PacketFate.ACCEPTED
    assert await handed_over(ntf, thief.packet(QUEUE)) is PacketFate.BAD_QUEUE
    assert await handed_over(ntf, thief.packet(QUEUE, PacketKind.DISSOCIATE)) is PacketFate.BAD_QUEUE
    found = await ntf.store.subscription_of(QUEUE)
    assert found is not None
    assert found.token_id == device.device.token_id


async def test_an_ended_queue_does_not_come_back_with_an_old_packet(
    ntf: NtfHarness, device: DirectDevice
) -> None:
    association = device.packet(QUEUE)
    assert await handed_over(ntf, association) is PacketFate.ACCEPTED
    end = device.packet(QUEUE, PacketKind.DISSOCIATE)
    for _ in range(2):
        assert await handed_over(ntf, end) is PacketFate.ACCEPTED
    assert await handed_over(ntf, association) is PacketFate.BAD_QUEUE
    assert await handed_over(ntf, device.packet(QUEUE)) is PacketFate.BAD_QUEUE
    assert await ntf.store.subscription_of(QUEUE) is None
    # When all that could be sealed before has expired, nothing has to be remembered.
    keys = ntf.running.keys
    assert keys is not None
    ntf.clock.time += 31 * DAY
    await keys.rotate()
    assert await handed_over(ntf, association) is PacketFate.UNKNOWN_KEY


async def test_packets_may_come_in_the_wrong_order(ntf: NtfHarness, device: DirectDevice) -> None:
    association, end = device.packet(QUEUE), device.packet(QUEUE, PacketKind.DISSOCIATE)
    assert await handed_over(ntf, end) is PacketFate.ACCEPTED
    assert await handed_over(ntf, association) is PacketFate.BAD_QUEUE


async def test_a_token_leaves_a_limited_number_of_marks(
    ntf: NtfHarness, device: DirectDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suspected in issue 17, and true: anyone could fill the store with ends of queues that never existed."""
    limit = 5
    direct = ntf.running.router._direct
    assert direct is not None
    monkeypatch.setattr(direct.packets, "_marks", RateTable(RateLimit(limit, 3600.0)))
    queues = [NotifierQueue(SMP, bytes([number]) * 24) for number in range(20)]
    for queue in queues:
        assert await handed_over(ntf, device.packet(queue, PacketKind.DISSOCIATE)) is PacketFate.ACCEPTED
    assert ntf.running.state.counters.direct_marks_left_out == len(queues) - limit
    ntf.clock.time += 31 * DAY
    assert await ntf.store.forget_ended(ntf.clock.now()) == limit


async def test_a_token_that_nobody_verified_leaves_no_marks(ntf: NtfHarness) -> None:
    device = await direct_device(ntf)
    token = await ntf.store.token(device.device.token_id)
    assert token is not None
    await ntf.store.replace_token(token.token_id, token.device_token, b"c" * 32, 1)
    assert await handed_over(ntf, device.packet(QUEUE, PacketKind.DISSOCIATE)) is PacketFate.ACCEPTED
    ntf.clock.time += 31 * DAY
    assert await ntf.store.forget_ended(ntf.clock.now()) == 0


async def test_marks_are_forgotten_by_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running_router, "EXPIRY_INTERVAL", 0.02)
    store = NtfMemoryStore()
    async with direct_router(store=store) as ntf:
        device = await direct_device(ntf)
        assert await handed_over(ntf, device.packet(QUEUE, PacketKind.DISSOCIATE)) is PacketFate.ACCEPTED
        assert len(list(store._tables.direct.ended())) == 1
        ntf.clock.time += 31 * DAY
        await until(lambda: not list(store._tables.direct.ended()))


async def test_no_device_makes_us_dial_a_private_host() -> None:
    settings = ntf_settings()
    strict = replace(settings.subscriber, allow_private_hosts=False)
    async with direct_router(subscriber=strict) as ntf:
        device = await direct_device(ntf)
        assert await handed_over(ntf, device.packet(QUEUE)) is PacketFate.BAD_QUEUE
        assert not ntf.running.subscribers.routers


async def test_a_device_has_queues_at_a_limited_number_of_routers() -> None:
    settings = ntf_settings()
    few = replace(settings.subscriber, routers_per_token=2)
    async with direct_router(subscriber=few) as ntf:
        device = await direct_device(ntf)
        fates = [
            await handed_over(
                ntf, device.packet(NotifierQueue(replace(SMP, port=str(9 + number)), bytes([number]) * 24))
            )
            for number in range(3)
        ]
        assert fates == [PacketFate.ACCEPTED, PacketFate.ACCEPTED, PacketFate.BAD_QUEUE]


async def test_a_store_that_fails_makes_the_smp_router_try_again() -> None:
    store: Any = FailingStore(NtfMemoryStore(), ["associate"], 1)
    async with direct_router(store=store) as ntf:
        device = await direct_device(ntf)
        forwarder = await direct_client(ntf)
        answer = await forwarder.ask(ForwardPacket(device.packet(QUEUE)))
        assert isinstance(answer, Refused)
        assert isinstance(answer.error, StoreFault)
        assert await forward(forwarder, device.packet(QUEUE)) is PacketFate.ACCEPTED


async def test_many_packets_at_a_time(ntf: NtfHarness, device: DirectDevice) -> None:
    forwarder = await direct_client(ntf)
    queues = [NotifierQueue(SMP, bytes([number]) * 24) for number in range(40)]
    fates = [await forward(forwarder, device.packet(queue)) for queue in queues]
    assert set(fates) == {PacketFate.ACCEPTED}
    used = await ntf.store.used_router(SMP)
    assert used is not None
    assert used.associated_count == 40


async def test_packets_leave_no_trace_in_the_log(
    ntf: NtfHarness, device: DirectDevice, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    await handed_over(ntf, device.packet(QUEUE))
    await handed_over(ntf, device.packet(QUEUE, key=ed25519()))
    await asyncio.sleep(0)
    for record in caplog.records:
        for secret in (QUEUE.notifier_id, device.device.token_id):
            assert repr(secret)[2:-1] not in record.getMessage()


async def test_a_check_in_a_direct_session_brings_the_key_also_for_a_dead_token(ntf: NtfHarness) -> None:
    device = await direct_device(ntf)
    answer = await device.device.ask(CheckToken())
    assert isinstance(answer, TokenCheckedWithKey)
