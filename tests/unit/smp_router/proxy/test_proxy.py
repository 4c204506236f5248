"""Forwarding for senders, both sides of it (smp-tests.md 12, smp.md 6.7)."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from tests.doubles.routers import HOST, running_router
from tests.doubles.smp_harness import (
    AUTH,
    CRYPTO,
    LARGE_MSG,
    OK,
    PROHIBITED,
    SYNTAX,
    Asked,
    SmpHarness,
    ed448,
    ed25519,
    router_credentials,
    send_command,
    smp_router,
    until,
    x25519,
)
from tests.doubles.smp_proxied_sender import ProxiedSender
from tocsin.clients import SmpClient
from tocsin.crypto.boxes import box_key
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.error_codes import (
    Blocked,
    BlockNotice,
    BlockReason,
    CommandFault,
    ErrorCode,
    NetworkFault,
    ProxyBroker,
    ProxyFault,
    ProxyProtocol,
    TransportFault,
)
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.smp.proxy_commands import ForwardToRelay, RelayForwarded, RequestProxySession
from tocsin.protocol.smp.proxying import RelayAnswerEnvelope, RelayEnvelope
from tocsin.protocol.smp.queue_modes import LinkData, QueueMode
from tocsin.protocol.smp.recipient_commands import SecureQueue, SetLinkData, Subscribe
from tocsin.protocol.smp.responses import LinkContent, ProxySession, RelayAnswer
from tocsin.protocol.smp.sender_commands import GetLinkData, SecureQueueBySender
from tocsin.smp_router.operator import QueueOperator
from tocsin.smp_router.proxy.relays import Relays
from tocsin.smp_router.settings.settings import SmpProxySettings
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.router_sessions import RouterConnection
from tocsin.wire.versions import VersionRange

PROXY = SmpProxySettings(remember_failure=1.0, connect_timeout=3.0, public_relays_only=False)
BASIC_AUTH = Refused(ProxyFault.BASIC_AUTH)
NO_SESSION = Refused(ProxyFault.NO_SESSION)
NETWORK = Refused(ProxyBroker(NetworkFault()))
LONGEST = 16048
SPAM = Blocked(BlockReason.SPAM)
SPAM_WITH_NOTICE = Blocked(BlockReason.SPAM, BlockNotice(60))


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        return port


async def test_p1_a_router_that_is_no_proxy() -> None:
    async with smp_router() as router:
        client = await router.connect(8)
        assert await client.ask(RequestProxySession(router.location)) == BASIC_AUTH


async def test_p2_the_password_of_the_proxy_is_checked() -> None:
    async with smp_router(proxy=PROXY, create_password="correct") as router:
        client = await router.connect(8)
        for password in (b"wrong", None):
            assert await client.ask(RequestProxySession(router.location, password)) == BASIC_AUTH
        await client.expect(ProxySession, RequestProxySession(router.location, b"correct"))


async def deliver(
    proxy: SmpHarness, relay: SmpHarness, key: AuthPrivateKey, sender_key: AuthPrivateKey, *bodies: bytes
) -> None:
    """The sequence *delivery* of smp-tests.md 12."""
    client = await proxy.connect(encrypted=True)
    recipient = await relay.connect(encrypted=True)
    queue = await recipient.new_queue(key, password=b"correct")
    sender = await ProxiedSender.through(client, relay.location, b"correct")
    again = await ProxiedSender.through(client, relay.location, b"correct")
    assert sender.found == again.found
    assert sender.found.versions == VersionRange(8, 20)
    other = bytes(reversed(sender.found.session_id))
    for body in bodies:
        assert await sender.forward(send_command(body), queue.sender_id) == OK
        refused = await sender.forward(send_command(body), queue.sender_id, session_id=other)
        assert refused == NO_SESSION
        message = await recipient.message(queue)
        assert queue.body(message) == body
        assert await recipient.acknowledge(queue, message) == OK
    assert await recipient.ask(SecureQueue(sender_key.public), queue.recipient_id, queue.key) == OK
    for body in bodies:
        assert await sender.forward(send_command(body), queue.sender_id, sender_key) == OK
        message = await recipient.message(queue)
        assert queue.body(message) == body
        assert await recipient.acknowledge(queue, message) == OK
    await recipient.nothing()


async def test_p3_delivery_when_the_proxy_is_its_own_relay() -> None:
    async with smp_router(proxy=PROXY, message_quota=128) as router:
        await deliver(router, router, ed448(), ed448(), b"hello 1", b"hello 2")


async def test_p4_delivery_to_another_router() -> None:
    async with smp_router(message_quota=128) as relay, smp_router(proxy=PROXY) as proxy:
        await deliver(proxy, relay, ed448(), ed448(), b"hello 1", b"hello 2")


@pytest.mark.parametrize("key", [ed448(), ed25519(), x25519()], ids=["448", "25519", "X"])
async def test_p5_to_p7_delivery_of_the_longest_messages(key: AuthPrivateKey) -> None:
    async with smp_router(message_quota=128) as relay, smp_router(proxy=PROXY) as proxy:
        await deliver(proxy, relay, key, key, os.urandom(LONGEST), os.urandom(LONGEST))


async def test_p9_a_relay_that_is_not_there() -> None:
    async with smp_router(proxy=PROXY) as router:
        client = await router.connect(8)
        nowhere = RouterLocation((HOST,), str(closed_port()), router.credentials.fingerprint)
        for _ in range(1000):
            assert await client.ask(RequestProxySession(nowhere)) == NETWORK


async def test_relays_that_failed_and_relays_that_left_are_forgotten() -> None:
    """The table does not grow with every address that clients think of."""
    async with smp_router(proxy=replace(PROXY, remember_failure=0.05)) as proxy:
        client = await proxy.connect()
        nowhere = RouterLocation((HOST,), str(closed_port()), proxy.credentials.fingerprint)
        assert await client.ask(RequestProxySession(nowhere)) == NETWORK
        async with smp_router() as relay:
            await ProxiedSender.through(client, relay.location)
        relays = proxy.running.router.proxy.relays
        await until(lambda: not len(relays) and not relays.remembered_failures)


async def test_a_relay_with_another_identity_is_as_one_that_is_not_there() -> None:
    async with smp_router(proxy=PROXY) as router:
        client = await router.connect()
        impostor = RouterLocation((HOST,), router.location.port, bytes(32))
        assert await client.ask(RequestProxySession(impostor)) == NETWORK


async def test_p11_p12_a_relay_that_does_not_know_proxies() -> None:
    """So the client may send directly, if it wants to."""
    async with smp_router(highest_version=7) as relay, smp_router(proxy=PROXY) as proxy:
        client = await proxy.connect()
        answer = await client.ask(RequestProxySession(relay.location))
        assert answer == Refused(ProxyBroker(TransportFault.VERSION))


async def test_a_relay_from_before_the_proxy_flag() -> None:
    async with smp_router(highest_version=12) as relay, smp_router(proxy=PROXY) as proxy:
        recipient, client = await relay.connect(12), await proxy.connect()
        queue = await recipient.new_queue()
        sender = await ProxiedSender.through(client, relay.location)
        assert sender.found.versions == VersionRange(8, 12)
        assert await sender.forward(send_command(b"hello"), queue.sender_id) == OK
        assert queue.body(await recipient.message(queue)) == b"hello"


async def test_what_senders_do_can_be_forwarded_and_nothing_else() -> None:
    async with smp_router() as relay, smp_router(proxy=PROXY) as proxy:
        recipient, client = await relay.connect(), await proxy.connect()
        queue, key = await recipient.new_queue(), ed25519()
        contact, link_id, data = (
            await recipient.new_queue(mode=QueueMode.CONTACT),
            os.urandom(24),
            LinkData(b"f", b"u"),
        )
        assert await recipient.ask(SetLinkData(link_id, data), contact.recipient_id, contact.key) == OK
        sender = await ProxiedSender.through(client, relay.location)
        assert await sender.forward(SecureQueueBySender(key.public), queue.sender_id, key) == OK
        assert await sender.forward(send_command(b"unsigned"), queue.sender_id) == AUTH
        assert await sender.forward(send_command(b"hello"), queue.sender_id, key) == OK
        assert await sender.forward(GetLinkData(), link_id) == LinkContent(contact.sender_id, data)
        assert await sender.forward(Subscribe(), queue.recipient_id, queue.key) == PROHIBITED
        assert await sender.forward(Ping(), b"") == PROHIBITED
        assert await sender.forward(send_command(b"hello"), b"missing", key) == AUTH
        two = await sender.forward(send_command(b"hello"), queue.sender_id, key, copies=2)
        assert two == Refused(ProxyProtocol(ErrorCode.BLOCK))


@pytest.mark.parametrize(("version", "longest"), [(8, 16064), (17, LONGEST), (18, LONGEST)])
async def test_forwarded_commands_are_of_their_own_version(version: int, longest: int) -> None:
    async with smp_router() as relay, smp_router(proxy=PROXY) as proxy:
        recipient, client = await relay.connect(), await proxy.connect()
        queue = await recipient.new_queue()
        sender = await ProxiedSender.through(client, relay.location)
        body = bytes(longest)
        assert await sender.forward(send_command(body + b"!"), queue.sender_id, version=version) == LARGE_MSG
        assert await sender.forward(send_command(body), queue.sender_id, version=version) == OK
        assert queue.body(await recipient.message(queue)) == body


async def test_a_version_that_the_relay_does_not_offer_is_refused() -> None:
    async with smp_router(highest_version=18) as relay, smp_router(proxy=PROXY) as proxy:
        sender = await ProxiedSender.through(await proxy.connect(), relay.location)
        assert sender.found.versions == VersionRange(8, 18)
        assert await sender.forward(send_command(b"hello"), b"queue", version=18) == AUTH
        refused = await sender.forward(send_command(b"hello"), b"queue", version=19)
        assert refused == Refused(ProxyProtocol(CommandFault.SYNTAX))


@pytest.mark.parametrize(("highest", "offered"), [(17, 17), (18, 17), (19, 18), (20, 20)])
async def test_versions_that_a_proxy_offers(highest: int, offered: int) -> None:
    """v7.md 1"""
    async with smp_router() as relay, smp_router(proxy=PROXY, highest_version=highest) as proxy:
        sender = await ProxiedSender.through(await proxy.connect(17), relay.location)
        assert sender.found.versions == VersionRange(8, offered)


async def test_forwarded_messages_notify() -> None:
    async with smp_router() as relay, smp_router(proxy=PROXY) as proxy:
        recipient, notified, client = await relay.connect(), await relay.connect(), await proxy.connect()
        queue = await recipient.new_queue()
        notifier = await recipient.enable_notifications(queue)
        sender = await ProxiedSender.through(client, relay.location)
        assert await sender.forward(send_command(b"hello", notify=True), queue.sender_id) == OK
        message = await recipient.message(queue)
        stored = relay.store.notifications(notifier.notifier_id)
        assert [each.message_id for each in stored] == [message.message_id]
        await notified.nothing()


async def test_many_clients_share_one_connection_to_the_relay() -> None:
    async with smp_router(message_quota=128) as relay, smp_router(proxy=PROXY) as proxy:
        recipient = await relay.connect()
        queue, key = await recipient.new_queue(), ed25519()
        assert await recipient.ask(SecureQueue(key.public), queue.recipient_id, queue.key) == OK

        async def send(number: int) -> bytes:
            client = await proxy.connect(encrypted=True)
            sender = await ProxiedSender.through(client, relay.location)
            for turn in range(5):
                command = send_command(b"%d %d" % (number, turn))
                assert await sender.forward(command, queue.sender_id, key) == OK
            return sender.found.session_id

        sessions = await asyncio.gather(*(send(number) for number in range(10)))
        assert len(set(sessions)) == 1
        assert relay.store.message_count(queue.recipient_id) == 50


async def test_p14_a_session_is_lost_with_the_relay_and_made_anew() -> None:
    """The first forward after it gets NO_SESSION or NETWORK, and the client asks again."""
    async with smp_router(proxy=replace(PROXY, remember_failure=0.0)) as proxy, AsyncExitStack() as first_run:
        relay = await first_run.enter_async_context(smp_router())
        recipient, client = await relay.connect(), await proxy.connect()
        queue, store = await recipient.new_queue(), relay.store
        location = relay.location
        sender = await ProxiedSender.through(client, location)
        assert await sender.forward(send_command(b"1"), queue.sender_id) == OK
        await first_run.aclose()
        assert await sender.forward(send_command(b"lost"), queue.sender_id) in (NO_SESSION, NETWORK)
        assert await client.ask(RequestProxySession(location)) == NETWORK
        async with smp_router(store, ports=(int(location.port),)) as relay:
            assert await sender.forward(send_command(b"lost"), queue.sender_id) == NO_SESSION
            sender = await ProxiedSender.through(client, relay.location)
            assert await sender.forward(send_command(b"2"), queue.sender_id) == OK
            assert store.message_count(queue.recipient_id) == 2


async def test_a_silent_relay_does_not_stop_the_clients_other_commands() -> None:
    with socket.create_server((HOST, 0)) as silent:
        nowhere = RouterLocation((HOST,), str(silent.getsockname()[1]), bytes(32))
        async with smp_router(proxy=replace(PROXY, connect_timeout=0.3)) as router:
            client = await router.connect()
            asking = asyncio.create_task(client.ask(RequestProxySession(nowhere)))
            other = await router.connect()
            queue = await other.secured_queue()
            assert await other.send_message(queue, b"hello") == OK
            assert not asking.done()
            assert await asking == NETWORK


@pytest.mark.parametrize("failure", [ssl.SSLError("bad record"), ValueError("nonsense"), OSError("gone")])
async def test_any_failure_to_connect_is_answered(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 7.0 the reference gave no answer to failures other than those of I/O (v7.md 4)."""

    async def fail(_relays: Relays, _location: RouterLocation) -> None:
        raise failure

    async with smp_router() as relay, smp_router(proxy=replace(PROXY, remember_failure=0.0)) as proxy:
        client = await proxy.connect()
        with monkeypatch.context() as patched:
            patched.setattr(Relays, "_connect", fail)
            assert await client.ask(RequestProxySession(relay.location)) == NETWORK
            assert await client.ask(Ping()) == Pong()
        await client.expect(ProxySession, RequestProxySession(relay.location))


async def test_any_failure_to_forward_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_args: object, **_options: object) -> None:
        raise ssl.SSLError("bad record")

    async with smp_router() as relay, smp_router(proxy=PROXY) as proxy:
        client = await proxy.connect()
        sender = await ProxiedSender.through(client, relay.location)
        with monkeypatch.context() as patched:
            patched.setattr(SmpClient, "request", fail)
            assert await sender.forward(send_command(b"hello"), b"queue") == NETWORK
        assert await sender.forward(send_command(b"hello"), b"queue") == AUTH


async def test_a_client_that_leaves_while_its_relay_is_connected_harms_nobody() -> None:
    """The next request connects (v7.md 4)."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def hold_up(connection: BlockConnection) -> None:
        arrived.set()
        await go_on.wait()

    held = replace(PROXY, connect_timeout=10.0, remember_failure=0.0)
    async with smp_router(proxy=held) as proxy, AsyncExitStack() as first_run:
        credentials = router_credentials()
        slow = await first_run.enter_async_context(
            running_router(credentials=credentials, on_connection=hold_up)
        )
        location = slow.address.location
        leaving = await proxy.connect()
        await leaving.send(Asked(RequestProxySession(location)))
        await arrived.wait()
        await leaving.close()
        await until(lambda: len(proxy.running.router.peers) == 0)
        go_on.set()
        await first_run.aclose()
        await until(lambda: not len(proxy.running.router.proxy.relays))
        async with running_router(credentials=credentials, port=int(location.port)):
            client = await proxy.connect()
            await client.expect(ProxySession, RequestProxySession(location))


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("[name]", SYNTAX),
        ("[127.0.0.1]", SYNTAX),
        ("na[me.example", SYNTAX),
        ("name].example", SYNTAX),
        ("[::1", SYNTAX),
        ("[::1]", NETWORK),
        ("::1", NETWORK),
    ],
)
async def test_brackets_are_for_ipv6_addresses(host: str, told: Refused) -> None:
    async with smp_router(proxy=PROXY) as proxy:
        client = await proxy.connect()
        location = RouterLocation((host,), str(closed_port()), bytes(32))
        assert await client.ask(RequestProxySession(location)) == told


# The relay's side, seen by a proxy


async def test_envelopes_that_do_not_open_are_refused() -> None:
    async with smp_router() as relay:
        proxy = await relay.connect(proxy=True)
        assert proxy.session.relay is not None
        assert not proxy.session.encrypted
        assert await proxy.ask(RelayForwarded(os.urandom(16_300))) == CRYPTO
        assert await proxy.ask(RelayForwarded(b"short")) == CRYPTO
        key = proxy.session.relay.forwarding_key
        nonce = os.urandom(24)
        envelope = RelayEnvelope(os.urandom(24), 17, x25519().public, os.urandom(16_242))
        assert await proxy.ask(RelayForwarded(envelope.seal(key, nonce)), corr_id=nonce) == CRYPTO
        unknown = replace(envelope, version=99)
        assert await proxy.ask(RelayForwarded(unknown.seal(key, nonce)), corr_id=nonce) == SYNTAX
        other_key = box_key(bytes(32))
        assert await proxy.ask(RelayForwarded(envelope.seal(other_key, nonce)), corr_id=nonce) == CRYPTO


async def test_a_connection_without_a_key_cannot_forward() -> None:
    async with smp_router() as relay:
        client = await relay.connect()
        assert await client.ask(RelayForwarded(os.urandom(16_300))) == CRYPTO


async def test_the_router_stops_while_its_proxy_is_connected() -> None:
    async with smp_router(proxy=PROXY) as router:
        client = await router.connect()
        await ProxiedSender.through(client, router.location)
        await until(lambda: len(router.running.router.peers) == 2)


# Bad clients and bad relays


async def test_a_transmission_that_fits_the_clients_block_but_not_the_relays_is_refused() -> None:
    async with smp_router() as relay, smp_router(proxy=PROXY) as proxy:
        client = await proxy.connect()
        sender = await ProxiedSender.through(client, relay.location)
        command = ForwardToRelay(17, x25519().public, bytes(16_252))
        answer = await client.ask(command, sender.found.session_id)
        assert answer == Refused(ProxyBroker(TransportFault.LARGE_MSG))
        assert await client.ask(Ping()) == Pong()


RELAY_ANSWERS: list[tuple[str, bytes]] = [
    ("an unknown tag", b"WHAT IS THIS"),
    ("another answer", b"PONG"),
    ("an envelope that does not open", b"RRES " + bytes(16_300)),
    ("an envelope that is too short", b"RRES "),
]


@pytest.mark.parametrize(
    "answer", [each[1] for each in RELAY_ANSWERS], ids=[each[0] for each in RELAY_ANSWERS]
)
async def test_a_relay_that_answers_nonsense_harms_nobody(answer: bytes) -> None:
    async def serve(connection: RouterConnection) -> None:
        while True:
            for received in await connection.receive():
                pong = connection.session.response(received.corr_id, b"", Pong())
                await connection.send([pong.removesuffix(b"PONG") + answer])

    async with running_router(serve) as relay, smp_router(proxy=PROXY) as proxy:
        client = await proxy.connect()
        sender = await ProxiedSender.through(client, relay.address.location)
        refused = await sender.forward(send_command(b"hello"), b"queue")
        assert isinstance(refused, Refused)
        assert isinstance(refused.error, ProxyBroker)
        assert await client.ask(Ping()) == Pong()


async def test_an_answer_that_does_not_fit_the_clients_block_harms_nobody() -> None:
    """The relay names a shorter correlation id than the sender's, so that its answer is longer than any right one."""

    async def serve(connection: RouterConnection) -> None:
        key = connection.session.forwarding_key
        assert key is not None
        while True:
            for received in await connection.receive():
                envelope = RelayAnswerEnvelope(b"", bytes(16_310)).seal(key, received.corr_id)
                response = RelayAnswer(envelope)
                await connection.send([connection.session.response(received.corr_id, b"", response)])

    async with running_router(serve) as relay, smp_router(proxy=PROXY) as proxy:
        client = await proxy.connect()
        sender = await ProxiedSender.through(client, relay.address.location)
        refused = await sender.forward(send_command(b"hello"), b"queue")
        assert refused == Refused(ProxyBroker(TransportFault.BLOCK))
        assert await client.ask(Ping()) == Pong()


async def test_a_client_has_a_number_of_forwarded_commands_at_a_time() -> None:
    """Beyond it the client is not read."""
    received, go_on = 0, asyncio.Event()

    async def serve(connection: RouterConnection) -> None:
        nonlocal received
        while True:
            for each in await connection.receive():
                received += 1
                await go_on.wait()
                await connection.send([connection.session.response(each.corr_id, b"", CRYPTO)])

    limited = replace(PROXY, client_concurrency=2)
    async with running_router(serve) as relay, smp_router(proxy=limited) as proxy:
        client, other = await proxy.connect(), await proxy.connect()
        sender = await ProxiedSender.through(client, relay.address.location)
        forward = ForwardToRelay(17, x25519().public, bytes(16_242))
        sent: list[bytes] = []
        for _ in range(3):
            sent += await client.send(Asked(forward, sender.found.session_id))
        await client.send(Asked(Ping()))
        await client.nothing()
        assert proxy.running.state.counters.proxy_forwards == 2
        assert await other.ask(Ping()) == Pong()
        go_on.set()
        answers = [each for _ in range(4) for each in await client.block()]
        refused = {each.corr_id: each.response for each in answers if each.response != Pong()}
        assert refused == dict.fromkeys(sent, Refused(ProxyProtocol(ErrorCode.CRYPTO)))
        assert received == 3


@pytest.mark.parametrize(
    ("version", "told"), [(11, AUTH), (17, Refused(SPAM)), (18, Refused(SPAM_WITH_NOTICE))]
)
async def test_blocked_queues_are_refused_in_the_version_of_the_sender(version: int, told: Refused) -> None:
    async with smp_router() as relay, smp_router(proxy=PROXY) as proxy:
        recipient, client = await relay.connect(), await proxy.connect()
        queue = await recipient.new_queue()
        sender = await ProxiedSender.through(client, relay.location)
        assert await QueueOperator(relay.running.state).block(queue.sender_id, SPAM_WITH_NOTICE)
        assert await sender.forward(send_command(b"hello"), queue.sender_id, version=version) == told
