"""Every variable of `tools.external_router` does what tests/interop/README.md says of it."""

from __future__ import annotations

import asyncio
import re
import socket
from base64 import urlsafe_b64encode as b64encode
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from bench.process_tree import children_of
from tests.doubles import external_routers
from tests.doubles.external_routers import UNENCRYPTED, ExternalRouter, external_router
from tests.doubles.ntf_harness import Device, NtfTestClient
from tests.doubles.ntf_world import ApnsPushes, Chat, becomes, subscribed_chat
from tests.doubles.routers import HOST, make_credentials, running_router
from tests.doubles.smp_harness import (
    AUTH,
    OK,
    PATIENCE,
    QUOTA,
    Asked,
    SmpTestClient,
    create_command,
    ed25519,
    send_command,
    smp_router,
    x25519,
)
from tests.doubles.smp_process import ADMIN_PASSWORD, ControlClient
from tests.doubles.smp_proxied_sender import ProxiedSender
from tocsin.crypto.credentials import Credentials
from tocsin.errors import HandshakeRefused
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.error_codes import ErrorCode, ProxyFault
from tocsin.protocol.ntf.pushes import CheckMessagesPush
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ntf.token_commands import SetPeriodicPush
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.proxy_commands import ForwardToRelay, RequestProxySession
from tocsin.protocol.smp.queue_modes import SubscriptionMode
from tocsin.protocol.smp.responses import Subscribed, SubscriptionEnded
from tocsin.push.fake.server import FakeApns, running_fake_apns
from tocsin.transport.client_sessions import DialSettings, dial_ntf, dial_smp
from tocsin.transport.credential_files import write_credentials
from tocsin.transport.router_sessions import RouterConnection
from tocsin.wire.versions import VersionRange
from tools.external_router import NTF_VARIABLES, SMP_VARIABLES, SPECIAL

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    made = make_credentials()
    write_credentials(tmp_path, made)
    return made


class Starter:
    """Starts routers with the same credentials."""

    def __init__(self, folder: Path, credentials: Credentials) -> None:
        self._folder, self._credentials = folder, credentials

    def __call__(self, kind: str, **variables: object) -> AbstractAsyncContextManager[ExternalRouter]:
        return external_router(kind, self._folder, self._credentials, **variables)


@pytest.fixture
def start(tmp_path: Path, credentials: Credentials) -> Starter:
    return Starter(tmp_path, credentials)


def free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


async def test_port_new_queues_and_password(start: Starter) -> None:
    port = free_port()
    async with start("smp", PORT=port, ALLOW_NEW="off") as router:
        assert router.port == port
        key = ed25519()
        assert await (await router.connect()).ask(create_command(key, x25519()), key=key) == AUTH
    async with start("smp", BASIC_AUTH="correct") as router:
        client, key = await router.connect(), ed25519()
        assert await client.ask(create_command(key, x25519(), password=b"wrong"), key=key) == AUTH
        await client.new_queue(password=b"correct")


async def test_control_port_and_its_quota(start: Starter) -> None:
    port = free_port()
    control = {
        "CONTROL_PORT": port,
        "CONTROL_USER": "user",
        "CONTROL_ADMIN": ADMIN_PASSWORD,
        "BLOCK_QUOTA": 1,
    }
    async with start("smp", **control) as router:
        client = await router.connect()
        queues = [await client.new_queue() for _ in range(2)]
        operator = await ControlClient.connect(port)
        first, second = (b64encode(each.sender_id).decode() for each in queues)
        assert await operator.ask(f"block {first} reason=spam") == "ok"
        assert "quota" in await operator.ask(f"block {second} reason=spam")
        assert await operator.ask(f"delete {second}") == "ok"
        operator.say("auth user")
        assert await operator.ask(f"delete {first}") == "AUTH"
        assert await operator.ask(f"status {first}") == "blocked,reason=spam"
        await operator.close()


async def some_seconds_pass() -> None:
    await asyncio.sleep(2.1)  # the router has the system's clock, which counts whole seconds


async def test_messages_expire_when_one_is_sent(start: Starter) -> None:
    async with start("smp", MSG_TTL=1, MSG_CHECK=10_000, EXPIRE_ON_SEND="on") as router:
        client = await router.connect()
        queue = await client.new_queue(subscription=SubscriptionMode.CREATE_ONLY)
        assert await client.send_message(queue, b"old") == OK
        await some_seconds_pass()
        assert await client.send_message(queue, b"new") == OK
        assert queue.body(await client.got(queue)) == b"new"


async def test_messages_and_notifications_expire_at_intervals(start: Starter) -> None:
    async with start("smp", MSG_TTL=1, MSG_CHECK=0.1, NTF_TTL=1, NTF_CHECK=0.1) as router:
        client, notified = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=SubscriptionMode.CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await some_seconds_pass()
        assert await client.get(queue) == OK
        assert await notified.subscribe_notifier(notifier) == Subscribed()
        await notified.nothing()


@pytest.mark.parametrize("on", [True, False])
async def test_messages_expire_at_a_start(start: Starter, tmp_path: Path, on: bool) -> None:
    files = {"STORE_LOG": tmp_path / "q.log", "STORE_MSGS": tmp_path / "m.log", "QUOTA": 1}
    async with start("smp", **files) as router:
        client = await router.connect()
        queue = await client.new_queue(subscription=SubscriptionMode.CREATE_ONLY)
        assert await client.send_message(queue, b"hello") == OK
    await some_seconds_pass()
    expiry = {"MSG_TTL": 1, "MSG_CHECK": 10_000, "EXPIRE_ON_START": "on" if on else "off"}
    async with start("smp", **files, **expiry) as router:
        answer = await (await router.connect()).send_message(queue, b"hello")
        assert answer == (OK if on else QUOTA)


async def test_stored_notifications_are_kept(start: Starter, tmp_path: Path) -> None:
    files = {
        "STORE_LOG": tmp_path / "q.log",
        "STORE_MSGS": tmp_path / "m.log",
        "STORE_NTFS": tmp_path / "n.log",
    }
    async with start("smp", **files) as router:
        client = await router.connect()
        queue = await client.secured_queue()
        notifier = await client.enable_notifications(queue)
        assert await client.send_message(queue, b"hello", notify=True) == OK
    assert len((tmp_path / "n.log").read_text().splitlines()) == 1
    async with start("smp", **files) as router:
        notified = await router.connect()
        assert await notified.subscribe_notifier(notifier) == Subscribed()
        await notified.notification(notifier)
    assert (tmp_path / "n.log").read_text() == ""


async def test_notifications_wait_for_their_pass(start: Starter) -> None:
    """Without the variable they wait for 1.5 seconds at most."""
    async with start("smp", NTF_INTERVAL=3_600_000_000) as router:
        client, notified = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=SubscriptionMode.CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await notified.subscribe_notifier(notifier) == Subscribed()
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await some_seconds_pass()
        await notified.nothing()


async def test_intervals_are_microseconds(start: Starter) -> None:
    async with start("smp", NTF_INTERVAL=200_000, END_INTERVAL=100_000) as router:
        first, second = await router.connect(), await router.connect()
        queue = await first.secured_queue()
        notifier = await first.enable_notifications(queue)
        assert await first.subscribe_notifier(notifier) == Subscribed()
        assert await second.send_message(queue, b"hello", notify=True) == OK
        await first.message(queue)
        await first.notification(notifier)
        assert await second.subscribe_notifier(notifier) == Subscribed()
        assert await first.event() == (notifier.notifier_id, SubscriptionEnded())


async def test_certificates_of_services_are_asked_for(start: Starter) -> None:
    for asked in ("on", "off"):
        async with start("smp", ASK_CERT=asked) as router:
            client = await router.connect(service=ServiceRole.NOTIFIER)
            assert (client.session.service is not None) == (asked == "on")


async def test_the_proxy(start: Starter) -> None:
    refused = Refused(ProxyFault.BASIC_AUTH)
    async with start("smp") as relay, start("smp") as off:
        assert await (await off.connect()).ask(RequestProxySession(relay.location)) == refused
        variables = {"PROXY": "on", "BASIC_AUTH": "correct", "PROXY_ERROR_INTERVAL": 0}
        async with start("smp", **variables) as proxy:
            client, recipient = await proxy.connect(), await relay.connect()
            assert await client.ask(RequestProxySession(relay.location, b"wrong")) == refused
            queue = await recipient.new_queue()
            sender = await ProxiedSender.through(client, relay.location, b"correct")
            assert await sender.forward(send_command(b"hello"), queue.sender_id) == OK
            await recipient.receive(queue, b"hello")
            port = free_port()
            late = RouterLocation((HOST,), str(port), relay.credentials.fingerprint)
            assert isinstance(await client.ask(RequestProxySession(late, b"correct")), Refused)
            async with start("smp", PORT=port):  # a failure is forgotten at once
                await ProxiedSender.through(client, late, b"correct")


@pytest.mark.parametrize("places", [1, 2])
async def test_a_client_has_a_number_of_forwarded_commands_at_a_time(start: Starter, places: int) -> None:
    """Beyond it the client is not read, so that its PING gets no answer."""
    go_on = asyncio.Event()

    async def hold_up(connection: RouterConnection) -> None:
        while True:
            for received in await connection.receive():
                await go_on.wait()
                refusal = connection.session.response(received.corr_id, b"", Refused(ErrorCode.CRYPTO))
                await connection.send([refusal])

    async with (
        running_router(hold_up) as relay,
        start("smp", PROXY="on", CLIENT_CONCURRENCY=places) as proxy,
    ):
        client = await proxy.connect()
        sender = await ProxiedSender.through(client, relay.address.location)
        forward = Asked(ForwardToRelay(17, x25519().public, bytes(16_242)), sender.found.session_id)
        for _ in range(places):
            await client.send(forward)
        assert await client.ask(Ping()) == Pong()
        await client.send(forward)
        await client.send(Asked(Ping()))
        await client.nothing()
        go_on.set()
        answers = [each.response for _ in range(places + 2) for each in await client.block()]
        assert answers.count(Pong()) == 1


async def test_versions_below_the_lowest_are_refused(start: Starter) -> None:
    async with start("smp", VMIN=17, VMAX=18) as router:
        assert (await router.connect()).session.version == 18
        with pytest.raises(HandshakeRefused):
            await router.connect(replace(UNENCRYPTED, versions=VersionRange(6, 16)))


async def test_a_server_without_alpn_speaks_the_oldest_version_only(start: Starter) -> None:
    async with start("smp", ALPN="off") as router:
        assert (await router.connect()).session.version == 6
        with pytest.raises(HandshakeRefused):
            await router.connect(replace(UNENCRYPTED, versions=VersionRange(7, 18)))


async def test_workers_have_the_connections(start: Starter) -> None:
    async with start("smp", WORKERS=2) as router:
        assert len(children_of(router.process.pid)) == 2
        assert await (await router.connect()).ask(Ping()) == Pong()


@pytest.mark.parametrize("level", ["DEBUG", "INFO"])
async def test_the_log_has_a_level(start: Starter, level: str) -> None:
    async with start("smp", LOG_LEVEL=level) as router:
        assert any(b"selector" in line for line in router.said) is (level == "DEBUG")


def test_every_variable_is_tried() -> None:
    """Given to a router, and not only a word in a test."""
    sources = [*Path(__file__).parent.glob("*.py"), Path(external_routers.__file__)]
    given = re.compile(r"(?<![A-Z_])(?:EXT_)?([A-Z_]+)(?:=|\": )")
    tried = set(given.findall("".join(path.read_text() for path in sources)))
    known = {*SMP_VARIABLES, *NTF_VARIABLES, *SPECIAL["smp"], *SPECIAL["ntf"]}
    assert known - tried == set()


async def test_direct_notifications_can_be_switched_off(start: Starter) -> None:
    dial = DialSettings(connect_timeout=PATIENCE, direct=True)
    for offered in ("on", "off"):
        async with start("smp", DIRECT=offered) as smp, start("ntf", DIRECT=offered) as ntf:
            connection = await dial_smp(RouterAddress(Scheme.SMP, smp.location), dial)
            assert connection.session.dialect.alpn == ("smp+direct/1" if offered == "on" else "smp/1")
            connection.abort()
            other = await dial_ntf(RouterAddress(Scheme.NTF, ntf.location), dial)
            assert other.session.dialect.alpn == ("ntf+direct/1" if offered == "on" else "ntf/1")
            other.abort()


@pytest.fixture
async def apns(tmp_path: Path) -> AsyncIterator[FakeApns]:
    (tmp_path / "apns").mkdir()
    async with running_fake_apns(tmp_path / "apns") as apns:
        yield apns


async def connected_device(router: ExternalRouter, apns: FakeApns) -> Device:
    address = RouterAddress(Scheme.NTF, router.location)
    client = NtfTestClient(await dial_ntf(address, DialSettings(connect_timeout=PATIENCE)))
    router.clients.append(client)
    return Device(client, ApnsPushes(apns), b"abcd")


async def subscribed(device: Device, smp: ExternalRouter, recipient: SmpTestClient) -> Chat:
    queue = await recipient.secured_queue()
    notifier = await recipient.enable_notifications(queue)
    chat = Chat(NotifierQueue(smp.location, notifier.notifier_id), queue, notifier)
    chat.subscription_id = await device.subscribe(chat.address, notifier.key)
    await becomes(device, chat, SubscriptionState.ACTIVE)
    return chat


@pytest.mark.parametrize("services", ["on", "off"])
async def test_both_routers(start: Starter, apns: FakeApns, url: str, services: str) -> None:
    """Pushes arrive, in every pair of versions; the store is where it should be, and the service is used or not."""
    kept = {"DB": url, "DB_SCHEMA": "ntf_other", "SERVICE_CREDS": services, "DIRECT": "off"}
    push = {"APNS_PORT": apns.port, "APNS_CA": apns.ca_file}
    for highest in (15, 18, 20):
        async with (
            start("smp", NTF_INTERVAL=0, DIRECT="off") as smp,
            start("ntf", **kept, **push, SMP_VMIN=6, SMP_VMAX=highest) as ntf,
        ):
            device = await (await connected_device(ntf, apns)).activate()
            recipient = await smp.connect()
            chat = await subscribed(device, smp, recipient)
            await chat.send(recipient)
            [item] = await device.notifications()
            chat.meta(item)
    connection = await asyncpg.connect(url)
    rows = await connection.fetch("SELECT ntf_service_id FROM ntf_other.smp_servers")
    await connection.close()
    assert {row[0] is not None for row in rows} == {services == "on"}


async def test_an_ntf_router_speaks_the_versions_of_the_suite(start: Starter) -> None:
    async with start("ntf", VMIN=2, VMAX=2) as router:
        address, settings = RouterAddress(Scheme.NTF, router.location), DialSettings(connect_timeout=PATIENCE)
        connection = await dial_ntf(address, settings)
        assert connection.session.version == 2
        connection.abort()
        with pytest.raises(HandshakeRefused):
            await dial_ntf(address, replace(settings, versions=VersionRange(1, 1)))


async def test_smp_versions_of_an_ntf_router(start: Starter, apns: FakeApns) -> None:
    """The SMP router sees the highest one. A router whose versions are all older than the lowest is not used."""
    push = {"APNS_PORT": apns.port, "APNS_CA": apns.ca_file, "DIRECT": "off"}
    async with (
        smp_router() as newer,
        smp_router(highest_version=16) as older,
        start("ntf", **push, SMP_VMIN=17, SMP_VMAX=18) as ntf,
    ):
        device = await (await connected_device(ntf, apns)).activate()
        unused = await subscribed_chat(older, device, await older.connect(16))
        await subscribed_chat(newer, device, await newer.connect(), SubscriptionState.ACTIVE)
        [seen] = {peer.session.version for peer in newer.running.router.peers if peer.notifiers}
        assert seen == 18
        assert await device.subscription_status(unused.subscription_id) != SubscriptionState.ACTIVE


async def test_periodic_pushes_are_looked_for(start: Starter, apns: FakeApns, url: str) -> None:
    """The period is at least 20 minutes, so the first one is not due. It is when the last one was long ago."""
    push = {"APNS_PORT": apns.port, "APNS_CA": apns.ca_file, "DB": url, "DB_SCHEMA": "ntf_periodic"}
    async with start("ntf", **push, PERIODIC_INTERVAL=0.05) as ntf:
        device = await (await connected_device(ntf, apns)).activate()
        assert await device.ask(SetPeriodicPush(20)) == OK
        await device.provider.nothing(device.device_token)
        connection = await asyncpg.connect(url)
        await connection.execute("UPDATE ntf_periodic.tokens SET cron_sent_at = cron_sent_at - 1201")
        await connection.close()
        assert await device.provider.next_push(device.device_token) == CheckMessagesPush()
        await device.provider.nothing(device.device_token)
