"""Requests, answers and events over one session, on real TLS."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from tests.doubles.client_counters import ClientCounters
from tests.doubles.routers import SERVICE_ID, block_connection, make_credentials, running_router
from tests.doubles.smp_harness import until
from tocsin.clients import Answer, ClientSettings, Event, NtfClient, Request, RouterRefused, SmpClient
from tocsin.crypto.keys import AuthPrivateKey, AuthPublicKey, Ed25519PrivateKey, X25519PrivateKey
from tocsin.errors import (
    ConnectionLost,
    DecodeError,
    LocalProtocolError,
    ResponseTimeout,
    UnexpectedResponse,
)
from tocsin.protocol.error_codes import CommandFault, ErrorCode
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.responses import TokenChecked
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.protocol.ntf.token_commands import CheckToken
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.sessions import ReceivedCommand, RouterSession, ServiceRole
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications, SubscribeServiceNotifications
from tocsin.protocol.smp.recipient_commands import DeleteQueue, GetMessage, Subscribe
from tocsin.protocol.smp.responses import (
    MessageReceived,
    ServiceSubscribed,
    Subscribed,
    SubscriptionEnded,
)
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.protocol.smp.services import service_fault
from tocsin.transport.client_sessions import DialSettings, ServiceIdentity
from tocsin.transport.router_sessions import RouterConnection
from tocsin.wire.versions import VersionRange

KEY = Ed25519PrivateKey(b"\x05" * 32)
QUEUE = b"\x11" * 24
OTHER_QUEUE = b"\x22" * 24


async def never_answer(connection: RouterConnection) -> None:
    while True:
        await connection.receive()


async def send_events(connection: RouterConnection, *events: tuple[bytes, Response]) -> None:
    session = connection.session
    await connection.send([session.response(b"", entity_id, event) for entity_id, event in events])


async def test_a_refusal_is_raised_with_the_routers_error() -> None:
    async def serve(connection: RouterConnection) -> None:
        await connection.serve(lambda _session, _received: Refused(ErrorCode.AUTH))

    async with running_router(serve) as router, SmpClient.connect(router.address) as client:
        with pytest.raises(RouterRefused) as refusal:
            await client.subscribe(QUEUE, KEY)
    assert refusal.value.error is ErrorCode.AUTH
    assert "ERR AUTH" in str(refusal.value)


async def test_an_answer_of_another_kind_is_unexpected() -> None:
    async def serve(connection: RouterConnection) -> None:
        await connection.serve(lambda _session, _received: Subscribed())

    async with running_router(serve) as router, SmpClient.connect(router.address) as client:
        with pytest.raises(UnexpectedResponse, match="DEL was answered with SOK"):
            await client.delete_queue(QUEUE, KEY)


async def test_an_answer_for_another_entity_is_unexpected() -> None:
    async def serve(connection: RouterConnection) -> None:
        while True:
            for received in await connection.receive():
                await connection.send([connection.session.response(received.corr_id, OTHER_QUEUE, Done())])

    async with running_router(serve) as router, SmpClient.connect(router.address) as client:
        with pytest.raises(UnexpectedResponse, match="another entity"):
            await client.delete_queue(QUEUE, KEY)


async def test_an_answer_that_does_not_parse_fails_only_its_request() -> None:
    async def serve(connection: RouterConnection) -> None:
        while True:
            for received in await connection.receive():
                session = connection.session
                reply = session.response(received.corr_id, received.entity_id, Pong())
                if received.entity_id:
                    reply = reply.removesuffix(b"PONG") + b"WHAT IS THIS"
                await connection.send([reply])

    async with running_router(serve) as router, SmpClient.connect(router.address) as client:
        with pytest.raises(DecodeError, match="unknown tag"):
            await client.delete_queue(QUEUE, KEY)
        await client.ping()


async def test_a_command_without_an_answer_times_out_and_the_session_goes_on() -> None:
    async def serve(connection: RouterConnection) -> None:
        while True:
            for received in await connection.receive():
                if isinstance(received, ReceivedCommand) and isinstance(received.command, Ping):
                    await connection.send([connection.session.response(received.corr_id, b"", Pong())])

    counters = ClientCounters()
    async with running_router(serve) as router, SmpClient.connect(router.address, metrics=counters) as client:
        with pytest.raises(ResponseTimeout, match="did not answer DEL within"):
            await client.request(DeleteQueue(), QUEUE, KEY, timeout=0.05)
        await client.ping()
    assert counters.timeouts == 1


async def test_an_answer_that_comes_too_late_is_an_event() -> None:
    give_up = asyncio.Event()

    async def serve(connection: RouterConnection) -> None:
        [received] = await connection.receive()
        await give_up.wait()
        message = MessageReceived(b"\x01" * 24, b"sealed")
        await connection.send([connection.session.response(received.corr_id, received.entity_id, message)])
        await never_answer(connection)

    counters = ClientCounters()
    async with running_router(serve) as router, SmpClient.connect(router.address, metrics=counters) as client:
        with pytest.raises(ResponseTimeout):
            await client.request(GetMessage(), QUEUE, KEY, timeout=0.05)
        give_up.set()
        event = await anext(client.events())
    assert event == Event(QUEUE, MessageReceived(b"\x01" * 24, b"sealed"), late=True)
    assert counters.late_answers == 1


async def test_a_cancelled_request_leaves_the_encryption_in_step() -> None:
    async with running_router() as router, SmpClient.connect(router.address) as client:
        assert client.session.encrypted
        requests = [asyncio.create_task(client.ping()) for _ in range(20)]
        await asyncio.sleep(0)
        for request in requests[::2]:
            request.cancel()
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert [type(result) for result in results[1::2]] == [type(None)] * 10
        await client.ping()


async def test_requests_fail_when_the_connection_is_lost_and_afterwards() -> None:
    async def serve(connection: RouterConnection) -> None:
        await connection.receive()
        connection.connection.abort()

    counters = ClientCounters()
    async with running_router(serve) as router, SmpClient.connect(router.address, metrics=counters) as client:
        with pytest.raises(ConnectionLost):
            await client.ping()
        with pytest.raises(ConnectionLost):
            await client.ping()
        with pytest.raises(ConnectionLost):
            await anext(client.events())
    assert counters.disconnections == 1


async def test_requests_that_wait_when_the_client_closes_are_told() -> None:
    async with running_router(never_answer) as router:
        async with SmpClient.connect(router.address) as client:
            request = asyncio.create_task(client.ping())
            await asyncio.sleep(0)
        with pytest.raises(ConnectionLost, match="closed by this client"):
            await request


async def test_an_error_inside_the_block_leaves_the_block_unchanged() -> None:
    async with running_router() as router:
        with pytest.raises(ZeroDivisionError):
            async with SmpClient.connect(router.address):
                raise ZeroDivisionError


async def test_a_block_that_does_not_decrypt_ends_the_session() -> None:
    async def serve(connection: RouterConnection) -> None:
        await block_connection(connection).write_block(os.urandom(16384))
        await never_answer(connection)

    async with running_router(serve) as router, SmpClient.connect(router.address) as client:
        with pytest.raises(ConnectionLost, match="broke the protocol"):
            await client.ping()


async def test_a_hundred_thousand_subscriptions_fill_blocks_and_keep_to_the_window() -> None:
    count, blocks = 100_000, 16
    taken = 0
    most_waiting = 0

    async def serve(connection: RouterConnection) -> None:
        await connection.serve(lambda _session, _received: Subscribed())

    def requests() -> Iterator[Request]:
        nonlocal taken
        for number in range(count):
            taken += 1
            yield Request(Subscribe(), number.to_bytes(24, "big"), KEY)

    counters = ClientCounters()
    settings = ClientSettings(window_bytes=blocks * 16_384)
    async with (
        running_router(serve) as router,
        SmpClient.connect(router.address, settings, metrics=counters) as client,
    ):
        answered = 0
        async for answer in client.request_all(requests()):
            assert answer.outcome == Subscribed()
            answered += 1
            most_waiting = max(most_waiting, taken - answered)
    assert answered == count
    assert counters.blocks_sent == -(-count // 135)
    assert most_waiting <= (blocks + 1) * 135


async def test_request_all_gives_one_answer_to_each_request_whatever_becomes_of_it() -> None:
    def answer(_session: RouterSession, received: ReceivedCommand) -> Response:
        return Refused(ErrorCode.AUTH) if received.entity_id == OTHER_QUEUE else Done()

    async def serve(connection: RouterConnection) -> None:
        await connection.serve(answer)

    requests = [
        Request(DeleteQueue(), QUEUE, KEY),
        Request(DeleteQueue(), OTHER_QUEUE, KEY),
        Request(SendMessage(MessageFlags(notify=False), bytes(17_000)), QUEUE, KEY),
        Request(DeleteQueue(), QUEUE, KEY),
    ]
    async with running_router(serve) as router, SmpClient.connect(router.address) as client:
        answers = {answer.request: answer.outcome async for answer in client.request_all(requests)}
    assert answers[requests[0]] == Done()
    assert answers[requests[1]] == Refused(ErrorCode.AUTH)
    assert isinstance(answers[requests[2]], LocalProtocolError)


async def test_request_all_tells_of_every_request_when_the_connection_is_lost() -> None:
    async def serve(connection: RouterConnection) -> None:
        received = await connection.receive()
        session = connection.session
        await connection.send([session.response(each.corr_id, each.entity_id, Done()) for each in received])
        await block_connection(connection).drain()
        connection.connection.abort()

    requests = [Request(DeleteQueue(), number.to_bytes(24, "big"), KEY) for number in range(1000)]
    settings = ClientSettings(window_bytes=2 * 16_384)
    async with running_router(serve) as router, SmpClient.connect(router.address, settings) as client:
        answers: list[Answer] = [answer async for answer in client.request_all(requests)]
    assert sorted(answer.request.entity_id for answer in answers) == [each.entity_id for each in requests]
    done = [answer for answer in answers if answer.outcome == Done()]
    lost = [answer for answer in answers if isinstance(answer.outcome, ConnectionLost)]
    assert len(done) + len(lost) == 1000
    assert len(lost) > 500


async def test_request_all_tells_of_every_request_when_sending_finds_the_connection_gone() -> None:
    """The reader of the connection may not have noticed yet: no request may fall between the two."""
    requests = [Request(DeleteQueue(), number.to_bytes(24, "big"), KEY) for number in range(1000)]
    async with running_router(never_answer) as router, SmpClient.connect(router.address) as client:
        client._connection.abort()
        answers = [answer async for answer in client.request_all(requests)]
    assert sorted(answer.request.entity_id for answer in answers) == [each.entity_id for each in requests]
    assert all(isinstance(answer.outcome, ConnectionLost) for answer in answers)


async def test_request_all_times_out_block_by_block() -> None:
    async def serve(connection: RouterConnection) -> None:
        await connection.receive()
        received = await connection.receive()
        session = connection.session
        await connection.send([session.response(each.corr_id, each.entity_id, Done()) for each in received])
        await never_answer(connection)

    requests = [Request(DeleteQueue(), number.to_bytes(24, "big"), KEY) for number in range(200)]
    counters = ClientCounters()
    async with running_router(serve) as router, SmpClient.connect(router.address, metrics=counters) as client:
        answers = [answer async for answer in client.request_all(requests, timeout=0.2)]
    late = [answer for answer in answers if isinstance(answer.outcome, ResponseTimeout)]
    assert len(answers) == 200
    assert len(late) == counters.timeouts == 135


async def test_leaving_request_all_early_forgets_what_it_waits_for() -> None:
    async def serve(connection: RouterConnection) -> None:
        await connection.serve(lambda _session, _received: Done())

    requests = (Request(DeleteQueue(), number.to_bytes(24, "big"), KEY) for number in range(500))
    async with running_router(serve) as router, SmpClient.connect(router.address) as client:
        stream = client.request_all(requests)
        await anext(stream)
        await stream.aclose()
        assert len(client._pending) == 0
        await client.delete_queue(QUEUE, KEY)


async def test_a_version_without_batches_sends_one_command_per_block() -> None:
    async def serve(connection: RouterConnection) -> None:
        status = TokenChecked(TokenStatus(TokenState.ACTIVE))
        await connection.serve(lambda _session, _received: status)

    counters = ClientCounters()
    settings = ClientSettings(dial=DialSettings(versions=VersionRange(1, 1)))
    requests = [Request(CheckToken(), number.to_bytes(24, "big"), KEY) for number in range(5)]
    async with (
        running_router(serve, NTF) as router,
        NtfClient.connect(router.address, settings, metrics=counters) as client,
    ):
        answers = [answer async for answer in client.request_all(requests)]
    assert len(answers) == counters.blocks_sent == 5


async def test_events_come_in_order_and_end_with_the_connection() -> None:
    async def serve(connection: RouterConnection) -> None:
        await send_events(connection, (QUEUE, SubscriptionEnded()), (OTHER_QUEUE, SubscriptionEnded()))
        await block_connection(connection).drain()

    async with running_router(serve) as router, SmpClient.connect(router.address) as client:
        events = client.events()
        assert [(await anext(events)).entity_id for _ in range(2)] == [QUEUE, OTHER_QUEUE]
        with pytest.raises(ConnectionLost):
            await anext(events)


async def test_what_has_arrived_can_be_read_after_an_abort() -> None:
    """Also what waited for room."""

    async def serve(connection: RouterConnection) -> None:
        for number in range(2):
            await send_events(connection, (number.to_bytes(24, "big"), SubscriptionEnded()))
        await never_answer(connection)

    settings = ClientSettings(event_blocks=2)
    async with running_router(serve) as router, SmpClient.connect(router.address, settings) as client:
        await until(lambda: len(client._events._blocks) == 2)
        client.abort("for a test")
        [[first], [second]] = await anext(events := client.event_blocks())
        assert [int.from_bytes(each.entity_id, "big") for each in (first, second)] == [0, 1]
        with pytest.raises(ConnectionLost, match="for a test"):
            await anext(events)


async def test_events_that_nobody_reads_hold_the_router_back_and_none_is_lost() -> None:
    total = 600
    sent = 0

    async def serve(connection: RouterConnection) -> None:
        nonlocal sent
        for number in range(total):
            await send_events(connection, (number.to_bytes(24, "big"), SubscriptionEnded()))
            sent += 1
        await never_answer(connection)

    settings = ClientSettings(event_blocks=4)
    async with running_router(serve) as router, SmpClient.connect(router.address, settings) as client:
        before = -1
        while sent != before:  # until the router stands still
            before = sent
            await asyncio.sleep(0.2)
        assert sent < total
        assert len(client._events._blocks) <= 4
        events = client.events()
        seen = [(await anext(events)).entity_id for _ in range(total)]
    assert seen == [number.to_bytes(24, "big") for number in range(total)]


async def test_a_silent_connection_with_subscriptions_is_probed() -> None:
    pings = asyncio.Semaphore(0)

    def answer(_session: RouterSession, received: ReceivedCommand) -> Response:
        if isinstance(received.command, Ping):
            pings.release()
            return Pong()
        return Subscribed()

    async def serve(connection: RouterConnection) -> None:
        await connection.serve(answer)

    settings = ClientSettings(ping_after=0.02)
    async with running_router(serve) as router, SmpClient.connect(router.address, settings) as client:
        await client.subscribe(QUEUE, KEY)
        for _ in range(3):
            await pings.acquire()


async def test_a_router_that_answers_nothing_for_long_is_given_up() -> None:
    settings = ClientSettings(drop_after_timeouts=3, drop_after=0.0)
    async with running_router(never_answer) as router, SmpClient.connect(router.address, settings) as client:
        for _ in range(3):
            with pytest.raises(ResponseTimeout):
                await client.ping(timeout=0.01)
        with pytest.raises(ConnectionLost):
            await anext(client.events())


async def test_an_old_routers_message_in_answer_to_sub_is_an_event() -> None:
    async def serve(connection: RouterConnection) -> None:
        await connection.serve(lambda _session, _received: MessageReceived(b"\x01" * 24, b"sealed"))

    async with running_router(serve) as router, SmpClient.connect(router.address) as client:
        await client.subscribe(QUEUE, KEY)
        assert (await anext(client.events())).response == MessageReceived(b"\x01" * 24, b"sealed")


async def test_a_service_subscribes_with_both_signatures_and_with_its_own() -> None:
    notifier_keys: dict[bytes, AuthPublicKey] = {
        QUEUE: KEY.public,
        OTHER_QUEUE: X25519PrivateKey(b"\x06" * 32).public,
    }

    def answer(session: RouterSession, received: ReceivedCommand) -> Response:
        if fault := service_fault(received, session.service):
            return Refused(fault)
        match received.command:
            case SubscribeNotifications():
                key = notifier_keys[received.entity_id]
                return Subscribed(SERVICE_ID) if session.verifies(received, key) else Refused(ErrorCode.AUTH)
            case SubscribeServiceNotifications():
                return ServiceSubscribed(2)
            case _:
                return Refused(CommandFault.PROHIBITED)

    async def serve(connection: RouterConnection) -> None:
        await connection.serve(answer)

    service = ServiceIdentity(make_credentials(), ServiceRole.NOTIFIER)
    async with running_router(serve) as router, SmpClient.connect(router.address, service=service) as client:
        assert client.session.service is not None
        assert client.session.service.service_id == SERVICE_ID
        notifiers: list[tuple[bytes, AuthPrivateKey]] = [
            (QUEUE, KEY),
            (OTHER_QUEUE, X25519PrivateKey(b"\x06" * 32)),
        ]
        answers = [answer async for answer in client.subscribe_notifications(notifiers)]
        assert [answer.outcome for answer in answers] == [Subscribed(SERVICE_ID)] * 2
        assert await client.subscribe_service_notifications() == 2


async def test_nsubs_without_a_service_is_not_sent() -> None:
    async with running_router() as router, SmpClient.connect(router.address) as client:
        with pytest.raises(LocalProtocolError, match="service certificates"):
            await client.subscribe_service_notifications()


async def test_an_address_of_the_other_protocol_is_refused_before_connecting() -> None:
    with pytest.raises(DecodeError, match="an smp address is expected"):
        SmpClient.connect("ntf://H5uLO4QIu8uoFtuKlwNYjWEzzYcZ1Ww7dbXr44KY3mA=@localhost")
